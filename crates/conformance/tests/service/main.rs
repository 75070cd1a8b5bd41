//! The membership service: nodes, registry processes and a failing store, in virtual time.

#![allow(clippy::unwrap_used, missing_docs)]

mod managing;
mod owners;
mod processes;
mod random;
mod refusals;
mod rig;
mod sessions;
mod store;
mod views;

use std::time::Duration;

use carom_proto::membership::Membership;
use carom_proto::membership::service::ServerConfig;

use rig::{Rig, group};

const fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// Creates nodes in `groups` groups each, and waits until they agree.
fn agreed(processes: usize, nodes: usize, groups: usize, config: ServerConfig, seed: u64) -> Rig {
    let mut rig = Rig::new(processes, config, seed);
    for node in 0..nodes {
        assert_eq!(rig.add_node(), node);
        (0..groups).for_each(|it| rig.join(node, group(it)));
    }
    let done = rig.run_until(seconds(5), |rig| rig.agrees() && all_settled(rig));
    assert!(done, "no agreement, seed {seed}");
    rig.check();
    rig
}

fn all_settled(rig: &Rig) -> bool {
    rig.nodes.iter().all(|host| host.is_crashed || host.service.is_settled())
}

fn default() -> ServerConfig {
    ServerConfig::default()
}

//! The suites of the protocols that Carom is compared with.

use std::fmt::Debug;
use std::time::Duration;

use carom_baselines::Timeouts;
use carom_baselines::ack::{self, AckTimeout};
use carom_baselines::bimodal::{self, Bimodal};
use carom_baselines::domain::{DomainConfig, Hierarchy, RepairBy};
use carom_baselines::fec::{self, SenderFec};
use carom_baselines::lbrm::{self, Lbrm};
use carom_baselines::rmtp::{self, Rmtp};
use carom_baselines::srm::{self, Srm};
use carom_baselines::tmtp::{self, Tmtp};
use carom_conformance::lateral::{EngineSuite, OwedFrom, Setup};
use carom_conformance::one_of;
use carom_proto::{Engine, NodeId, Origin, Profile, Rng};

pub(super) fn all() -> [EngineSuite; 7] {
    [
        EngineSuite { name: "srm", set_up: draw_srm },
        EngineSuite { name: "bimodal", set_up: draw_bimodal },
        EngineSuite { name: "fec", set_up: draw_fec },
        EngineSuite { name: "ack", set_up: draw_ack },
        EngineSuite { name: "rmtp", set_up: draw_rmtp },
        EngineSuite { name: "lbrm", set_up: draw_lbrm },
        EngineSuite { name: "tmtp", set_up: draw_tmtp },
    ]
}

/// Returns a setup in which every engine gives up eventually, in its own way, and reports the loss.
fn setup<C: Clone + Debug + 'static, E: Engine + 'static>(
    config: &C,
    limit_bytes: usize,
    make: impl Fn(NodeId, C, u64) -> E + 'static,
) -> Setup {
    let engines = config.clone();
    let engine = move |origin: Origin, seed| make(origin.node, engines.clone(), seed);
    Setup {
        owed_from: OwedFrom::FirstHeard,
        delivers_all: false,
        confirms: false,
        ..Setup::new(format!("{config:?}"), Profile::Guest, engine, limit_bytes)
    }
}

fn draw_srm(rng: &mut Rng) -> Setup {
    let presets =
        [srm::Config::ns2_fixed(), srm::Config::ns2_adaptive(), srm::Config::datacenter()];
    let config = srm::Config {
        retain_bytes: one_of(rng, &[64 << 20, 20_000]),
        give_up_after: Duration::from_secs(8),
        ..one_of(rng, &presets)
    };
    setup(&config, config.retain_bytes, Srm::new)
}

fn draw_bimodal(rng: &mut Rng) -> Setup {
    let config = bimodal::Config {
        max_history: one_of(rng, &[16_384, 50]),
        retransmissions_per_round: one_of(rng, &[100, 5]),
        ..bimodal::Config::default()
    };
    // Each of up to four groups has a history. `MOST_BYTES` includes the overhead of a message.
    let limit_bytes = 4 * config.max_history * MOST_BYTES;
    setup(&config, limit_bytes, Bimodal::new)
}

fn draw_fec(rng: &mut Rng) -> Setup {
    let config = fec::Config {
        r: one_of(rng, &[1, 4, 8]),
        c: one_of(rng, &[0, 1, 5]),
        flush_after: one_of(rng, &[None, Some(Duration::from_millis(100))]),
        retain_bytes: one_of(rng, &[16 << 20, 20_000]),
        max_sets: one_of(rng, &[64, 2]),
        ..fec::Config::default()
    };
    // In addition to retained data: a partly filled set, and the parity of sets per stream.
    let shards = usize::from(config.r) + usize::from(config.c);
    let sets = 4 * (1 + MOST_STREAMS * config.max_sets) * shards * MOST_BYTES;
    let limit_bytes = config.retain_bytes + sets;
    setup(&config, limit_bytes, SenderFec::new)
}

fn draw_ack(rng: &mut Rng) -> Setup {
    let config = ack::Config {
        window: one_of(rng, &[1024, 8, 1]),
        max_retransmissions: one_of(rng, &[10, 3]),
        give_up_after: Duration::from_secs(8),
        ..ack::Config::default()
    };
    let limit_bytes = 4 * config.window * MOST_BYTES;
    // The sender waits for a member during all retransmissions, each after the longest timeout.
    let patience = config.timeouts.most * (config.max_retransmissions + 1);
    Setup { patience, ..setup(&config, limit_bytes, AckTimeout::new) }
}

/// Draws the settings that protocols with domains share: one head, several, or only the sources.
fn draw_domains(rng: &mut Rng) -> DomainConfig {
    let by_id = |domains| Hierarchy::by_id(domains).expect("at least one domain");
    DomainConfig {
        hierarchy: one_of(rng, &[Hierarchy::flat(), by_id(1), by_id(3)]),
        detect_after: one_of(rng, &[Duration::ZERO, Duration::from_millis(4)]),
        gather_for: one_of(rng, &[Duration::ZERO, Duration::from_millis(1)]),
        climb_after: one_of(rng, &[4, 1]),
        give_up_after: Duration::from_secs(8),
        retain_bytes: one_of(rng, &[16 << 20, 20_000]),
        ..DomainConfig::default()
    }
}

fn draw_rmtp(rng: &mut Rng) -> Setup {
    let config = rmtp::Config {
        domains: draw_domains(rng),
        repair_by: one_of(rng, &[RepairBy::FewerLinks, RepairBy::Threshold(0)]),
        ack_interval: one_of(rng, &[Duration::from_millis(20), Duration::from_millis(2)]),
        window: one_of(rng, &[1024, 8, 1]),
        slow_after: one_of(rng, &[Duration::from_secs(5), Duration::from_secs(1)]),
        ..rmtp::Config::default()
    };
    let limit_bytes = config.domains.retain_bytes;
    let patience = config.slow_after + Duration::from_secs(1);
    Setup { patience, ..setup(&config, limit_bytes, Rmtp::new) }
}

fn draw_lbrm(rng: &mut Rng) -> Setup {
    let defaults = lbrm::Config::default();
    let long = Duration::from_millis(200);
    let long = Timeouts { initial: long, least: long, ..defaults.nack_timeouts };
    let config = lbrm::Config {
        domains: draw_domains(rng),
        repair_by: one_of(rng, &[RepairBy::FewerLinks, RepairBy::Threshold(0)]),
        nack_timeouts: one_of(rng, &[defaults.nack_timeouts, long]),
        ..defaults
    };
    let limit_bytes = config.domains.retain_bytes;
    setup(&config, limit_bytes, Lbrm::new)
}

fn draw_tmtp(rng: &mut Rng) -> Setup {
    let config = tmtp::Config {
        domains: draw_domains(rng),
        nack_spread: one_of(rng, &[Duration::from_millis(2), Duration::ZERO]),
        window: one_of(rng, &[1024, 8, 1]),
        slow_after: one_of(rng, &[Duration::from_secs(5), Duration::from_secs(1)]),
        ..tmtp::Config::default()
    };
    let limit_bytes = config.domains.retain_bytes;
    let patience = config.slow_after + config.retransmit_after + Duration::from_secs(1);
    Setup { patience, ..setup(&config, limit_bytes, Tmtp::new) }
}

/// Maximum cost of keeping a message of the scenarios, with its overhead.
const MOST_BYTES: usize = 1400;
/// Maximum number of senders in a scenario: hosts, and hosts with a new identity.
const MOST_STREAMS: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;
    use carom_sim::scenario::Suite as _;

    /// A burst of losses on a link lasted longer than the time after which losses are given up.
    #[test]
    fn seeds_that_failed_with_long_bursts_of_losses_hold() {
        let suite = EngineSuite { name: "fec", set_up: draw_fec };
        for seed in [660_000_196, 660_000_406, 660_000_893] {
            let found = suite.run_seed(seed).failure.map(|it| it.violations);
            assert!(found.is_none(), "seed {seed}: {found:#?}");
        }
    }
}

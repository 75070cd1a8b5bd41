//! Protocols that Carom is compared with, as subjects of the fuzzer.

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
use carom_proto::{Engine, GroupSettings, NodeId, Origin, Profile, Rng};
use carom_sim::fuzz::{OwedFrom, Setup, Subject};

use super::subjects::one_of;

/// Returns all baseline protocols.
pub(super) fn all() -> Vec<Box<dyn Subject>> {
    vec![
        Box::new(Baseline { name: "srm", draw: draw_srm }),
        Box::new(Baseline { name: "bimodal", draw: draw_bimodal }),
        Box::new(Baseline { name: "fec", draw: draw_fec }),
        Box::new(Baseline { name: "ack", draw: draw_ack }),
        Box::new(Baseline { name: "rmtp", draw: draw_rmtp }),
        Box::new(Baseline { name: "lbrm", draw: draw_lbrm }),
        Box::new(Baseline { name: "tmtp", draw: draw_tmtp }),
    ]
}

/// Protocol, and the function that draws its settings.
struct Baseline {
    name: &'static str,
    draw: fn(&mut Rng) -> Drawn,
}

/// Drawn settings of a protocol.
struct Drawn {
    text: String,
    make: Box<dyn Fn(NodeId, u64) -> Box<dyn Engine>>,
    limit_bytes: usize,
    patience: Duration,
}

impl Subject for Baseline {
    fn name(&self) -> &'static str {
        self.name
    }

    fn set_up(&self, rng: &mut Rng) -> Box<dyn Setup> {
        Box::new((self.draw)(rng))
    }
}

impl Setup for Drawn {
    fn describe(&self) -> String {
        self.text.clone()
    }

    fn group(&self, name: &str) -> GroupSettings {
        GroupSettings::new(name, Profile::Guest)
    }

    fn engine(&self, origin: Origin, seed: u64) -> Box<dyn Engine> {
        (self.make)(origin.node, seed)
    }

    fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }

    fn owed_from(&self) -> OwedFrom {
        OwedFrom::FirstHeard
    }

    /// Every baseline protocol gives up eventually, in its own way, and reports the loss.
    fn delivers_all(&self) -> bool {
        false
    }

    fn patience(&self) -> Duration {
        self.patience
    }

    fn broken_promise(&self, _: &[(&'static str, u64)]) -> Option<String> {
        None
    }

    fn confirms(&self) -> bool {
        false
    }
}

fn draw_srm(rng: &mut Rng) -> Drawn {
    let presets =
        [srm::Config::ns2_fixed(), srm::Config::ns2_adaptive(), srm::Config::datacenter()];
    let config = srm::Config {
        retain_bytes: one_of(rng, &[64 << 20, 20_000]),
        give_up_after: Duration::from_secs(8),
        ..one_of(rng, &presets)
    };
    let (text, limit_bytes) = (format!("{config:?}"), config.retain_bytes);
    let make = move |id, seed| Box::new(Srm::new(id, config.clone(), seed)) as Box<dyn Engine>;
    Drawn { text, make: Box::new(make), limit_bytes, patience: NONE_HELD_BACK }
}

fn draw_bimodal(rng: &mut Rng) -> Drawn {
    let config = bimodal::Config {
        max_history: one_of(rng, &[16_384, 50]),
        retransmissions_per_round: one_of(rng, &[100, 5]),
        ..bimodal::Config::default()
    };
    // Each of up to four groups has a history. `MOST_BYTES` includes the overhead of a message.
    let limit_bytes = 4 * config.max_history * MOST_BYTES;
    let text = format!("{config:?}");
    let make = move |id, seed| Box::new(Bimodal::new(id, config.clone(), seed)) as Box<dyn Engine>;
    Drawn { text, make: Box::new(make), limit_bytes, patience: NONE_HELD_BACK }
}

fn draw_fec(rng: &mut Rng) -> Drawn {
    let config = fec::Config {
        r: one_of(rng, &[1, 4, 8]),
        c: one_of(rng, &[0, 1, 5]),
        flush_after: one_of(rng, &[None, Some(Duration::from_millis(100))]),
        retain_bytes: one_of(rng, &[16 << 20, 20_000]),
        max_sets: one_of(rng, &[64, 2]),
        ..fec::Config::default()
    };
    // In addition to retained data: a partly filled set in each group, and the parity of sets per
    // stream.
    let shards = usize::from(config.r) + usize::from(config.c);
    let sets = 4 * (1 + MOST_STREAMS * config.max_sets) * shards * MOST_BYTES;
    let (text, limit_bytes) = (format!("{config:?}"), config.retain_bytes + sets);
    let make =
        move |id, seed| Box::new(SenderFec::new(id, config.clone(), seed)) as Box<dyn Engine>;
    Drawn { text, make: Box::new(make), limit_bytes, patience: NONE_HELD_BACK }
}

fn draw_ack(rng: &mut Rng) -> Drawn {
    let config = ack::Config {
        window: one_of(rng, &[1024, 8, 1]),
        max_retransmissions: one_of(rng, &[10, 3]),
        give_up_after: Duration::from_secs(8),
        ..ack::Config::default()
    };
    let (text, limit_bytes) = (format!("{config:?}"), 4 * config.window * MOST_BYTES);
    // The sender waits for a member during all retransmissions, each after the longest timeout.
    let patience = config.timeouts.most * (config.max_retransmissions + 1);
    let make =
        move |id, seed| Box::new(AckTimeout::new(id, config.clone(), seed)) as Box<dyn Engine>;
    Drawn { text, make: Box::new(make), limit_bytes, patience }
}

/// Draws the settings that protocols with domains have in common: a hierarchy with one head, with
/// several, or with the sources only.
fn draw_domains(rng: &mut Rng) -> DomainConfig {
    let by_id = |domains| Hierarchy::by_id(domains).expect("it is more than none");
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

fn draw_rmtp(rng: &mut Rng) -> Drawn {
    let config = rmtp::Config {
        domains: draw_domains(rng),
        repair_by: one_of(rng, &[RepairBy::FewerLinks, RepairBy::Threshold(0)]),
        ack_interval: one_of(rng, &[Duration::from_millis(20), Duration::from_millis(2)]),
        window: one_of(rng, &[1024, 8, 1]),
        slow_after: one_of(rng, &[Duration::from_secs(5), Duration::from_secs(1)]),
        ..rmtp::Config::default()
    };
    let (text, limit_bytes) = (format!("{config:?}"), config.domains.retain_bytes);
    let patience = config.slow_after + Duration::from_secs(1);
    let make = move |id, seed| Box::new(Rmtp::new(id, config.clone(), seed)) as Box<dyn Engine>;
    Drawn { text, make: Box::new(make), limit_bytes, patience }
}

fn draw_lbrm(rng: &mut Rng) -> Drawn {
    let defaults = lbrm::Config::default();
    let long = Duration::from_millis(200);
    let long = Timeouts { initial: long, least: long, ..defaults.nack_timeouts };
    let config = lbrm::Config {
        domains: draw_domains(rng),
        repair_by: one_of(rng, &[RepairBy::FewerLinks, RepairBy::Threshold(0)]),
        nack_timeouts: one_of(rng, &[defaults.nack_timeouts, long]),
        ..defaults
    };
    let (text, limit_bytes) = (format!("{config:?}"), config.domains.retain_bytes);
    let make = move |id, seed| Box::new(Lbrm::new(id, config.clone(), seed)) as Box<dyn Engine>;
    Drawn { text, make: Box::new(make), limit_bytes, patience: NONE_HELD_BACK }
}

fn draw_tmtp(rng: &mut Rng) -> Drawn {
    let config = tmtp::Config {
        domains: draw_domains(rng),
        nack_spread: one_of(rng, &[Duration::from_millis(2), Duration::ZERO]),
        window: one_of(rng, &[1024, 8, 1]),
        slow_after: one_of(rng, &[Duration::from_secs(5), Duration::from_secs(1)]),
        ..tmtp::Config::default()
    };
    let (text, limit_bytes) = (format!("{config:?}"), config.domains.retain_bytes);
    let patience = config.slow_after + config.retransmit_after + Duration::from_secs(1);
    let make = move |id, seed| Box::new(Tmtp::new(id, config.clone(), seed)) as Box<dyn Engine>;
    Drawn { text, make: Box::new(make), limit_bytes, patience }
}

/// For protocols whose senders do not wait for receivers.
const NONE_HELD_BACK: Duration = Duration::ZERO;
/// Maximum cost of keeping a message of the scenarios, with its overhead.
const MOST_BYTES: usize = 1400;
/// Maximum number of senders in a group of a scenario: hosts, and hosts that returned with a new
/// identity.
const MOST_STREAMS: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;
    use carom_sim::fuzz;

    /// A burst of losses on a link lasted longer than the time after which losses are given up.
    #[test]
    fn seeds_that_failed_with_long_bursts_of_losses_hold() {
        let subject = Baseline { name: "fec", draw: draw_fec };
        for seed in [660_000_196, 660_000_406, 660_000_893] {
            let found = fuzz::run_seed(&subject, seed).failure.map(|it| it.violations);
            assert!(found.is_none(), "seed {seed}: {found:#?}");
        }
    }
}

//! The protocols that can be tested, with settings that bring their rare paths up.

use std::time::Duration;

use carom_proto::lateral::{Config, Lateral, NakConfig, RepairScope, Solver};
use carom_proto::{Engine, GroupSettings, NodeId, Profile, RateOfFire, Rng};
use carom_sim::fuzz::{OwedFrom, Setup, Subject};

use super::baselines;

/// The protocol called `name`; the names of all if there is none.
pub(super) fn named(name: &str) -> Result<Box<dyn Subject>, Vec<&'static str>> {
    let mut all: Vec<Box<dyn Subject>> = vec![Box::new(LateralSubject)];
    all.extend(baselines::all());
    let names = all.iter().map(|subject| subject.name()).collect();
    all.into_iter().find(|subject| subject.name() == name).ok_or(names)
}

/// Ricochet and Slingshot.
struct LateralSubject;

struct LateralSetup {
    config: Config,
    rate: RateOfFire,
}

impl Subject for LateralSubject {
    fn name(&self) -> &'static str {
        "lateral"
    }

    fn set_up(&self, rng: &mut Rng) -> Box<dyn Setup> {
        let config = Config {
            own_packets: rng.chance(0.7),
            window: one_of(rng, &[0, 1, 2, 8, 64, 1 << 14]),
            max_gap: one_of(rng, &[1 << 16, 1 << 16, 1 << 16, 40, 5]),
            buffer_bytes: one_of(rng, &[64 << 20, 64 << 20, 20_000, 2_000, 0]),
            stagger: one_of(rng, &[1, 1, 3]),
            partial_view: one_of(rng, &[None, None, Some(2)]),
            solver: one_of(rng, &[Solver::Elimination, Solver::Elimination, Solver::Peeling]),
            scope: one_of(rng, &[RepairScope::Regions, RepairScope::PerGroup]),
            pending_repairs: one_of(rng, &[256, 3, 0]),
            nak: Some(NakConfig {
                ids_per_second: one_of(rng, &[50_000, 200, 0]),
                ..NakConfig::default()
            }),
            flush_after: one_of(
                rng,
                &[None, Some(Duration::ZERO), Some(Duration::from_millis(20))],
            ),
            patience: one_of(rng, &[Duration::ZERO, Duration::from_millis(500)]),
            ..Config::default()
        };
        let rate = RateOfFire::new(one_of(rng, &[1, 4, 8]), one_of(rng, &[0, 1, 2, 5, 9]));
        Box::new(LateralSetup { config, rate })
    }
}

impl Setup for LateralSetup {
    fn describe(&self) -> String {
        format!("rate-of-fire {}, {:?}", self.rate, self.config)
    }

    fn group(&self, name: &str) -> GroupSettings {
        GroupSettings::new(name, Profile::TimeCritical(self.rate))
    }

    fn engine(&self, id: NodeId, seed: u64) -> Box<dyn Engine> {
        Box::new(Lateral::new(id, self.config.clone(), seed))
    }

    /// The data buffer, and what pending repairs may hold besides.
    fn limit_bytes(&self) -> usize {
        let repairs = self.config.pending_repairs * self.config.max_datagram_bytes();
        self.config.buffer_bytes + repairs
    }

    fn owed_from(&self) -> OwedFrom {
        OwedFrom::View
    }

    /// What is lost, and the first packet after a jump of more than `max_gap`, must be asked for,
    /// and be there still.
    fn delivers_all(&self) -> bool {
        let Config { nak, max_gap, buffer_bytes, .. } = &self.config;
        let asks = nak.as_ref().is_some_and(|nak| nak.ids_per_second > 0);
        asks && *buffer_bytes >= 20_000 && *max_gap >= 40
    }

    /// Repairs are c / r of the packets they are made of. Those of part-filled bins come on top,
    /// and there are some whenever a view changes.
    fn broken_promise(&self, counters: &[(&'static str, u64)]) -> Option<String> {
        let of = |name| {
            let found = counters.iter().find(|(other, _)| *other == name);
            found.expect("the engine counts it").1 as f64
        };
        let ratio = f64::from(self.rate.c) / f64::from(self.rate.r);
        let (repairs, promised) = (of("repairs_sent"), ratio * of("packets_binned"));
        let is_broken = self.config.flush_after.is_none() && repairs > 1.5 * promised + 50.0;
        is_broken.then(|| format!("{repairs} repairs where {promised} are due"))
    }

    fn confirms(&self) -> bool {
        true
    }
}

pub(super) fn one_of<T: Clone>(rng: &mut Rng, choices: &[T]) -> T {
    choices[rng.below(choices.len())].clone()
}

use std::fmt;

use carom_baselines::srm::{Config, Srm};
use carom_baselines::{Shell, StreamConfig};
use carom_proto::{Class, Engine, Profile};
use carom_sim::{PerClass, World};
use serde::Deserialize;

use super::member::Member;
use super::run::{Driven, LateralRun};
use crate::delays::Delays;
use crate::work::{Ends, Run};

/// A run of SRM with one engine per node, which acts like one process per group would.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SrmRun {
    /// Setting of the run. Fields that are specific to the lateral engine have no effect.
    pub(crate) run: LateralRun,
    pub(crate) preset: Preset,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Preset {
    /// For the Internet, as measured in the papers: [`Config::wide_area`].
    WideArea,
    Datacenter,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SrmOutcome {
    /// Number of packets whose multicast did not arrive.
    pub(crate) lost: u64,
    /// Delays from the multicast to the detection of the loss.
    pub(crate) discovery: Delays,
    pub(crate) recovery: Delays,
    /// Number of lost packets that had not arrived at the end.
    pub(crate) missing: u64,
    /// Share of requests, repairs and session messages among the datagrams that arrived.
    pub(crate) overhead: f64,
}

impl Preset {
    fn config(self) -> Config {
        let config = match self {
            Self::WideArea => Config::wide_area(),
            Self::Datacenter => Config::datacenter(),
        };
        Config { streams: StreamConfig::from_first(), ..config }
    }
}

impl Run for SrmRun {
    type Outcome = SrmOutcome;

    fn run(&self, ends: Ends<'_>) -> Option<Self::Outcome> {
        let config = self.preset.config();
        let make = |id, seed| Srm::new(id, config.clone(), seed);
        let arrived = |world: &World<Member<Shell<Srm>>>| world.counters().delivered;
        let driven = self.run.drive(make, |_| Profile::Guest, arrived, ends)?;
        Some(outcome(driven))
    }

    fn cost(&self) -> f64 {
        2.0 * self.run.cost()
    }
}

fn outcome<E: Engine>(driven: Driven<E, PerClass>) -> SrmOutcome {
    let Driven { ledger, before, after, .. } = driven;
    let data = (after.datagrams(Class::Data) - before.datagrams(Class::Data)) as f64;
    let all = (after.all_datagrams() - before.all_datagrams()) as f64;
    let group = ledger.close().swap_remove(0);
    SrmOutcome {
        lost: group.lost,
        discovery: group.discovery,
        recovery: group.nak,
        missing: group.missing,
        overhead: 1.0 - data / all,
    }
}

impl fmt::Display for SrmRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SRM, {}", self.run)
    }
}

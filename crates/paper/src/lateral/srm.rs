//! The same runs by Scalable Reliable Multicast.

use std::fmt;

use carom_baselines::Owed;
use carom_baselines::srm::{Config, Srm};
use carom_proto::{Class, Engine, Profile};
use carom_sim::{PerClass, World};
use serde::Deserialize;

use super::member::Member;
use super::{Delays, Driven, LateralRun};
use crate::work::Ends;

/// A run of SRM: an engine in each node that keeps groups apart as one process for each would.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SrmRun {
    /// Everything but the protocol; what is peculiar to the lateral engine is of no meaning.
    pub(crate) run: LateralRun,
    /// How SRM is set.
    pub(crate) preset: Preset,
}

/// How SRM is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Preset {
    /// For the Internet, as the papers measured it: [`Config::wide_area`].
    WideArea,
    /// As it could be set in a data center: [`Config::datacenter`].
    Datacenter,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SrmOutcome {
    /// Packets that should have arrived by multicast and did not.
    pub(crate) lost: u64,
    /// From the multicast to the discovery of the loss.
    pub(crate) discovery: Delays,
    /// From the multicast to the recovery.
    pub(crate) recovery: Delays,
    /// Lost packets that had not come by the end.
    pub(crate) missing: u64,
    /// Requests, repairs and session messages as a share of all that arrived.
    pub(crate) overhead: f64,
}

impl Preset {
    /// Its settings, for members that are all there from the start.
    fn config(self) -> Config {
        let config = match self {
            Self::WideArea => Config::wide_area(),
            Self::Datacenter => Config::datacenter(),
        };
        Config { owed: Owed::First, ..config }
    }
}

impl SrmRun {
    /// Does it; `None` if it was ended early.
    pub(crate) fn run(&self, ends: Ends<'_>) -> Option<SrmOutcome> {
        let config = self.preset.config();
        let make = |id, seed| Srm::new(id, config.clone(), seed);
        let arrived = |world: &World<Member<Srm>>| world.counters().delivered;
        let driven = self.run.drive(make, |_| Profile::Guest, arrived, ends)?;
        Some(outcome(driven))
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

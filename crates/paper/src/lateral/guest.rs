use std::fmt;

use carom_baselines::ack::{self, AckTimeout};
use carom_baselines::bimodal::{self, Bimodal};
use carom_baselines::fec::{self, SenderFec};
use carom_baselines::srm::{self, Srm};
use carom_baselines::{Shell, StreamConfig};
use carom_proto::{Class, Engine, NodeId, Profile};
use carom_sim::{PerClass, World};
use serde::Deserialize;

use super::member::Member;
use super::run::{Driven, LateralRun};
use crate::delays::Delays;
use crate::work::{Env, Run};

/// A run of another protocol with one engine per node, which acts like one process per group would.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GuestRun {
    /// Setting of the run. Fields that are specific to the lateral engine have no effect.
    pub(crate) run: LateralRun,
    pub(crate) guest: Guest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Guest {
    /// SRM for the Internet, as measured in the papers: [`srm::Config::wide_area`].
    SrmForInternet,
    SrmForDatacenter,
    /// Acknowledgments from every receiver.
    Ack,
    /// Sender-based FEC as in the papers: sets are not flushed, and senders send no heartbeats.
    SenderFec,
    Bimodal,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GuestOutcome {
    /// Number of packets whose multicast did not arrive.
    pub(crate) lost: u64,
    /// Delays from the multicast to the detection of the loss, of retransmitted packets.
    pub(crate) discovery: Delays,
    /// Delays from the multicast to the recovery, by parity or retransmission.
    pub(crate) recovery: Delays,
    /// Number of lost packets that had not arrived at the end.
    pub(crate) missing: u64,
    /// Share of all datagrams but messages among the datagrams that arrived.
    pub(crate) overhead: f64,
    /// Number of control datagrams that arrived, relative to the messages.
    pub(crate) control_per_message: f64,
}

impl Guest {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::SrmForInternet => "SRM",
            Self::SrmForDatacenter => "SRM for data centers",
            Self::Ack => "ACK",
            Self::SenderFec => "sender FEC",
            Self::Bimodal => "Bimodal Multicast",
        }
    }
}

impl Run for GuestRun {
    type Outcome = GuestOutcome;

    fn run(&self, env: Env<'_>) -> Option<Self::Outcome> {
        let streams = StreamConfig::from_first();
        match self.guest {
            Guest::SrmForInternet => {
                let config = srm::Config { streams, ..srm::Config::wide_area() };
                self.drive(|id, seed| Srm::new(id, config.clone(), seed), env)
            }
            Guest::SrmForDatacenter => {
                let config = srm::Config { streams, ..srm::Config::datacenter() };
                self.drive(|id, seed| Srm::new(id, config.clone(), seed), env)
            }
            Guest::Ack => {
                let config = ack::Config { streams, ..ack::Config::default() };
                self.drive(|id, seed| AckTimeout::new(id, config.clone(), seed), env)
            }
            Guest::SenderFec => {
                let r = self.run.membership.r();
                let c = self.run.membership.c();
                let (flush_after, heartbeat) = (None, None);
                let config =
                    fec::Config { streams, r, c, flush_after, heartbeat, ..fec::Config::default() };
                self.drive(|id, seed| SenderFec::new(id, config.clone(), seed), env)
            }
            Guest::Bimodal => {
                let config = bimodal::Config { streams, ..bimodal::Config::default() };
                self.drive(|id, seed| Bimodal::new(id, config.clone(), seed), env)
            }
        }
    }

    fn hosts_of_medium(&self) -> Option<u32> {
        self.run.hosts_of_medium()
    }

    fn cost(&self) -> f64 {
        2.0 * self.run.cost()
    }
}

impl GuestRun {
    fn drive<P>(
        &self,
        make: impl FnMut(NodeId, u64) -> Shell<P>,
        env: Env<'_>,
    ) -> Option<GuestOutcome>
    where
        Shell<P>: Engine,
    {
        let arrived = |world: &World<Member<Shell<P>>>| world.counters().delivered;
        let driven = self.run.drive(make, |_| Profile::Guest, arrived, env)?;
        Some(outcome(driven))
    }
}

fn outcome<E: Engine>(driven: Driven<E, PerClass>) -> GuestOutcome {
    let Driven { ledger, before, after, .. } = driven;
    let arrived = |class| (after.datagrams(class) - before.datagrams(class)) as f64;
    let data = arrived(Class::Data);
    let all = (after.all_datagrams() - before.all_datagrams()) as f64;
    let group = ledger.close().swap_remove(0);
    GuestOutcome {
        lost: group.lost,
        discovery: group.discovery,
        recovery: group.fec.with(&group.nak),
        missing: group.missing,
        overhead: 1.0 - data / all,
        control_per_message: arrived(Class::Control) / data,
    }
}

impl fmt::Display for GuestRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.guest.name(), self.run)
    }
}

use core::fmt::{self, Display};
use core::time::Duration;

use carom_proto::loss::Loss;
use carom_proto::{GroupId, Rng};
use carom_sim::HostIx;

use crate::providers::Service;
use crate::step::Kind;

/// The hosts and groups of a scenario, and their environment.
#[derive(Clone, Debug)]
pub struct Participants {
    /// Number of hosts.
    pub hosts: u32,
    /// Number of groups.
    pub groups: u32,
    /// Source of the members' views.
    pub views: Views,
    /// Loss model of every host until a fault replaces it.
    pub loss: Loss,
    /// Kinds of faults: a random subset, which makes rare combinations likely (swarm testing).
    pub kinds: Vec<Kind>,
    /// `true` if a restarted host keeps its node id, where engines distinguish starts.
    pub keeps_ids: bool,
    /// Delay of every path, in addition to that of a local network.
    pub distance: Duration,
}

/// The source of the members' views.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Views {
    /// The world's roster, which reports a change within this time.
    Roster(Duration),
    /// The members' gossip, which detects a failure within this time.
    Gossip(Duration),
    /// A registry.
    Service(Service),
}

impl Views {
    pub(crate) fn is_roster(self) -> bool {
        matches!(self, Self::Roster(_))
    }
}

impl Participants {
    /// Returns the id of the group with index `number`.
    pub fn group(number: u32) -> GroupId {
        GroupId(100 + number)
    }

    pub(crate) fn any_host(&self, rng: &mut Rng) -> HostIx {
        HostIx(rng.below(self.hosts as usize) as u32)
    }

    pub(crate) fn any_group(&self, rng: &mut Rng) -> GroupId {
        Self::group(rng.below(self.groups as usize) as u32)
    }

    pub(crate) fn some_hosts(&self, rng: &mut Rng) -> Vec<HostIx> {
        (0..self.hosts).filter(|_| rng.chance(0.4)).map(HostIx).collect()
    }
}

impl Display for Participants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { hosts, groups, views, loss, kinds, keeps_ids, distance } = self;
        writeln!(f, "{hosts} hosts, {groups} groups, views from {views:?}, loss {loss}")?;
        let ids = if *keeps_ids { "kept" } else { "new" };
        writeln!(f, "kinds of faults: {kinds:?}; {ids} ids after restarts")?;
        if !distance.is_zero() {
            writeln!(f, "one-way delay between hosts {distance:?}")?;
        }
        Ok(())
    }
}

use core::fmt::{self, Debug, Display};

use carom_proto::GroupId;
use carom_proto::membership::service::CommitFailure;
use carom_sim::{Fault, HostIx};

/// A step of a scenario whose applications perform actions of type `A`.
#[derive(Clone, Debug, PartialEq)]
pub enum Step<A> {
    /// The host joins the group, unless it is a member, paused or dead.
    Join(HostIx, GroupId),
    /// The host leaves the group, if it is a member and not paused.
    Leave(HostIx, GroupId),
    /// The host is killed.
    Crash(HostIx),
    /// The node on the host announces its end, and stops, unless it is paused.
    Stop(HostIx),
    /// A killed host restarts in its former groups, with a new node id or a new incarnation.
    Restart(HostIx),
    /// A host is killed and restarts at once under its id, without a report of its failure.
    Bounce(HostIx),
    /// The roster, if there is one, falsely reports the failure of the second host to the first.
    Suspect(HostIx, HostIx),
    /// The false report to the first host about the second is withdrawn.
    Trust(HostIx, HostIx),
    /// A fault begins or ends.
    Fault(Fault),
    /// An attacker sends this number of datagrams to the host.
    Forge(HostIx, u32, Forgery),
    /// A registry process is killed.
    KillProcess(u32),
    /// A registry process is started, unless it is running.
    StartProcess(u32),
    /// Sets the failure of the service's store, and the share of its answers that are lost.
    Store(Option<CommitFailure>, f64),
    /// An action of an application.
    Act(A),
}

/// A kind of forged datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forgery {
    /// A recently overheard datagram, unchanged.
    Replay,
    /// A recently overheard datagram with changed bytes or another length.
    Mutation,
    /// A valid header with a random body.
    Garbage,
    /// A datagram that the protocol's suite crafts from an overheard one.
    Crafted,
    /// Gossip about the sender of an overheard datagram, or about nodes that do not exist.
    Gossip,
}

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A host is killed, and no restart follows.
    Crash,
    /// A host is killed and restarted.
    Restart,
    /// A host is paused for a while.
    Pause,
    /// Some hosts are partitioned from the others for a while.
    Partition,
    /// Datagrams of some hosts do not reach some others for a while.
    OneWay,
    /// Datagrams are delayed, duplicated or corrupted for a while.
    Disturb,
    /// A host loses many datagrams for a while.
    Loss,
    /// A host's clock is set forward or back.
    Clock,
    /// A host is slow for a while.
    Slow,
    /// A host falsely considers another host failed for a while.
    Suspicion,
    /// A host leaves a group and joins it again.
    Churn,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 11] = [
        Self::Crash,
        Self::Restart,
        Self::Pause,
        Self::Partition,
        Self::OneWay,
        Self::Disturb,
        Self::Loss,
        Self::Clock,
        Self::Slow,
        Self::Suspicion,
        Self::Churn,
    ];
}

impl<A> Step<A> {
    /// Returns `true` if the step can prevent a node from receiving or answering a query.
    pub(crate) fn can_silence(&self) -> bool {
        match self {
            Self::Crash(_) | Self::Stop(_) | Self::Restart(_) | Self::Bounce(_) => true,
            Self::Suspect(..) | Self::KillProcess(_) | Self::Leave(..) => true,
            Self::Fault(Fault::Heal | Fault::Resume(_) | Fault::Disturb(_)) => false,
            Self::Fault(_) => true,
            _ => false,
        }
    }

    pub(crate) fn forgery(&self) -> Option<Forgery> {
        match self {
            Self::Forge(.., forgery) => Some(*forgery),
            _ => None,
        }
    }
}

impl<A: Debug> Display for Step<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Act(action) => write!(f, "{action:?}"),
            step => write!(f, "{step:?}"),
        }
    }
}

impl Forgery {
    pub(crate) const COMMON: [Self; 4] =
        [Self::Replay, Self::Mutation, Self::Garbage, Self::Crafted];

    /// Returns `true` if members may accept the datagram as genuine, which only keys could prevent.
    pub fn can_deceive(self) -> bool {
        self == Self::Mutation
    }
}

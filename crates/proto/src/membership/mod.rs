//! Membership providers, which report view changes.
//!
//! Engines consume [`ViewChange`]s and do not know which provider reports them. A provider is a
//! state machine under the same contract as the engines: call its input methods with a
//! non-decreasing `now`, drain `poll_transmit`, then `poll_event`, then wait until `poll_timeout`.
//! For a provider that uses a registry over TCP, also call `handle_link`, and drain `poll_link`
//! together with `poll_transmit`. See [`link`].

pub mod gossip;
pub mod link;
pub mod service;
pub mod static_list;

use alloc::collections::{BTreeSet, VecDeque};
use core::time::Duration;

use self::link::{LinkCommand, LinkEvent, LinkId};

pub use crate::engine::ManagerNews;
use crate::wire::Datagram;
use crate::{
    Endpoint, GroupId, GroupSettings, JoinError, NodeId, Rng, Time, Transmit, ViewChange,
    ViewChangeKind, Wakeup,
};

/// A membership provider.
pub trait Membership: Send {
    /// Adds this node to `group`.
    ///
    /// # Errors
    /// Returns [`JoinError::AlreadyJoined`] if this node is already in the group, or
    /// [`JoinError::NameCollision`] if a known group of another name has the same id. A provider
    /// can also return [`JoinError::Contradiction`] if known members have other settings, or the
    /// error for a limit. The groups of this node are then unchanged.
    fn join(&mut self, now: Time, group: GroupId, settings: GroupSettings)
    -> Result<(), JoinError>;

    /// Sets the endpoint of this node. Returns `true` if the provider reports it to other nodes.
    fn set_endpoint(&mut self, _now: Time, _endpoint: Endpoint) -> bool {
        false
    }

    /// Removes this node from `group`.
    fn leave(&mut self, now: Time, group: GroupId);

    /// Notifies the other nodes that this node is stopping, so that they need not detect it.
    fn shut_down(&mut self, _now: Time) {}

    /// Processes a datagram of [`crate::wire::Protocol::Membership`] from `source`. A provider that
    /// exchanges no datagrams ignores it.
    fn handle_datagram(&mut self, _now: Time, _source: Endpoint, _datagram: &Datagram<'_>) {}

    /// Records that an engine received an intact datagram from `node`, which is therefore alive.
    ///
    /// The method is called for every packet. It produces no datagram and no event, and must return
    /// within a few nanoseconds.
    fn heard(&mut self, _now: Time, _source: Endpoint, _node: NodeId) {}

    /// Processes the timers that are due at `now`.
    fn handle_timeout(&mut self, _now: Time) {}

    /// Appends the next outgoing datagram to `out` and returns its destination and class.
    fn poll_transmit(&mut self, _out: &mut Vec<u8>) -> Option<Transmit> {
        None
    }

    /// Processes an event of a connection that this provider opened. See [`link`].
    fn handle_link(&mut self, _now: Time, _link: LinkId, _event: LinkEvent<'_>) {}

    /// Returns the next command for a connection. A provider without a registry has none.
    fn poll_link(&mut self) -> Option<LinkCommand> {
        None
    }

    /// Sends a request to the multicast manager of the registry, or drops it if the manager is not
    /// reachable. See [`crate::rdcm::manager::messages`] for the format.
    fn ask_manager(&mut self, _request: Vec<u8>) {}

    /// Returns the next report about the multicast manager of the registry.
    fn poll_manager(&mut self) -> Option<ManagerNews> {
        None
    }

    /// Returns the next event, if any.
    fn poll_event(&mut self) -> Option<MembershipEvent>;

    /// Returns when [`Membership::handle_timeout`] must next be called, and the reason.
    fn poll_timeout(&self) -> Option<Wakeup> {
        None
    }

    /// Returns the other known nodes that are believed to be alive, with their endpoints.
    fn nodes(&self) -> Vec<(NodeId, Endpoint)>;

    /// Returns `true` if the node has received its initial views, or has stopped waiting for them.
    fn is_settled(&self) -> bool;

    /// Returns `true` if all parties that decide about the join of `group` have accepted it. The
    /// default implementation returns [`Membership::is_settled`].
    fn has_joined(&self, _group: GroupId) -> bool {
        self.is_settled()
    }

    /// Returns the next group whose join [became complete](Membership::has_joined). A provider
    /// whose joins are all complete once it is settled reports only [`MembershipEvent::Settled`].
    fn poll_joined(&mut self) -> Option<GroupId> {
        None
    }

    /// Returns a message for the user about the current problem of the provider, if any.
    fn trouble(&self) -> Option<String> {
        None
    }

    /// Returns all counters with their names.
    fn stats(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Asserts the provider's invariants.
    fn check(&self) {}
}

/// An event that a membership provider reports to its driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MembershipEvent {
    /// The view of a group has changed.
    View(ViewChange),
    /// The node can be reached at this endpoint. Precedes the view changes that add the node.
    Met(NodeId, Endpoint),
    /// The node has failed or stopped or, with a registry, shares no more groups with this node.
    /// This event follows any view changes that remove the node.
    Parted(NodeId),
    /// [`Membership::is_settled`] has become `true` for the first time.
    Settled,
    /// The registry, or an owner that this node needs, is unreachable. Affected views are kept.
    Away,
    /// The registry is reachable again, and all views are up to date.
    Returned,
    /// This node's join is void and has been undone. The error gives the reason: a member that
    /// joined earlier has other settings, or the registry refused the join.
    Refused(GroupId, JoinError),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    New,
    Running,
    Stopped,
}

#[derive(Debug, Default)]
struct GroupView {
    members: BTreeSet<NodeId>,
    version: u32,
}

impl GroupView {
    fn admit(
        &mut self,
        events: &mut VecDeque<MembershipEvent>,
        group: GroupId,
        node: NodeId,
    ) -> bool {
        let is_new = self.members.insert(node);
        if is_new {
            events.push_back(self.change(group, node, ViewChangeKind::Joined));
        }
        is_new
    }

    fn dismiss(
        &mut self,
        events: &mut VecDeque<MembershipEvent>,
        group: GroupId,
        node: NodeId,
        kind: ViewChangeKind,
    ) -> bool {
        let was_member = self.members.remove(&node);
        if was_member {
            events.push_back(self.change(group, node, kind));
        }
        was_member
    }

    fn change(&mut self, group: GroupId, node: NodeId, kind: ViewChangeKind) -> MembershipEvent {
        self.version = self.version.wrapping_add(1);
        MembershipEvent::View(ViewChange { group, node, kind, version: self.version })
    }
}

fn already_joined(existing: GroupSettings, settings: GroupSettings) -> JoinError {
    if existing.name_check == settings.name_check {
        JoinError::AlreadyJoined
    } else {
        JoinError::NameCollision
    }
}

/// Returns `pause` varied by up to a quarter, so that nodes do not act at the same time.
fn jittered(rng: &mut Rng, pause: Duration) -> Duration {
    let quarter = u64::try_from(pause.as_nanos() / 4).unwrap_or(u64::MAX / 8);
    let random = rng.below(2 * quarter as usize + 1) as u64;
    Duration::from_nanos(3 * quarter + random)
}

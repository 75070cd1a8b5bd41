//! Who is there: providers of view changes.
//!
//! Engines consume [`ViewChange`]s and never ask who produced them. A provider is a state machine
//! under the same contract as the engines: input verbs with a non-decreasing `now`, then drain
//! `poll_transmit`, then `poll_event`, then wait until `poll_timeout`. A provider that talks to a
//! service over reliable streams has two verbs more: `handle_link`, and `poll_link`, which is
//! drained with `poll_transmit`; see [`link`].

pub mod gossip;
pub mod link;
pub mod service;
pub mod static_list;

use self::link::{LinkCommand, LinkEvent, LinkId};

use crate::{
    Endpoint, GroupId, GroupSettings, JoinError, NodeId, Time, Transmit, ViewChange, Wakeup,
};

/// A membership provider.
pub trait Membership: Send {
    /// This node is in `group` from now on.
    ///
    /// # Errors
    /// [`JoinError::Contradiction`] or [`JoinError::NameCollision`] if a member that is already
    /// known has the group with other settings: the join did not take place.
    fn join(&mut self, now: Time, group: GroupId, settings: GroupSettings)
    -> Result<(), JoinError>;

    /// Others reach this node at `endpoint` from now on. Returns whether they will learn it.
    /// Default: they will not.
    fn set_endpoint(&mut self, _now: Time, _endpoint: Endpoint) -> bool {
        false
    }

    /// This node is no longer in `group`.
    fn leave(&mut self, now: Time, group: GroupId);

    /// This node is about to stop: tell the others, so that they need not find out.
    fn shut_down(&mut self, now: Time);

    /// A datagram of [`crate::wire::Protocol::Membership`] arrived from `source`.
    fn handle_datagram(&mut self, now: Time, source: Endpoint, datagram: &[u8]);

    /// A datagram of an engine arrived whole from `node`, which is alive therefore. It may change
    /// what the provider concludes later, but gives it nothing to send or to tell at once. It is
    /// called for every packet and has to be done in a few nanoseconds. The default forgets it.
    fn heard(&mut self, _now: Time, _source: Endpoint, _node: NodeId) {}

    /// Time has passed.
    fn handle_timeout(&mut self, now: Time);

    /// Appends the next datagram to `out` and says where it goes.
    fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Transmit>;

    /// Something happened to a link that this provider has asked for; see [`link`].
    fn handle_link(&mut self, _now: Time, _link: LinkId, _event: LinkEvent<'_>) {}

    /// The next thing to be done with a link. A provider without a service never wants any.
    fn poll_link(&mut self) -> Option<LinkCommand> {
        None
    }

    /// Asks the multicast manager of the service; see [`crate::rdcm::asking`]. A provider without
    /// one forgets it.
    fn ask_manager(&mut self, _request: Vec<u8>) {}

    /// The next thing that is known of the multicast manager of the service. A provider without one
    /// never knows any.
    fn poll_manager(&mut self) -> Option<ManagerNews> {
        None
    }

    /// The next thing that happened.
    fn poll_event(&mut self) -> Option<MembershipEvent>;

    /// When [`Membership::handle_timeout`] should be called next, and why.
    fn poll_timeout(&self) -> Option<Wakeup>;

    /// The other nodes that are known and thought alive, with their endpoints.
    fn nodes(&self) -> Vec<(NodeId, Endpoint)>;

    /// Whether the node has found its place: it knows what its contacts know, or has tried long
    /// enough to be sure that it is the first.
    fn is_settled(&self) -> bool;

    /// Whether the node is in `group` for good: who had to be asked has agreed. Not sooner than it
    /// is settled, by default.
    fn has_joined(&self, _group: GroupId) -> bool {
        self.is_settled()
    }

    /// The next group in which the node [is for good](Membership::has_joined) since this was asked
    /// last. A provider in which it is in all groups once it is settled names none: that is a
    /// [`MembershipEvent::Settled`].
    fn poll_joined(&mut self) -> Option<GroupId> {
        None
    }

    /// What keeps the provider from its work, in a few words for the user; `None` if nothing does.
    fn trouble(&self) -> Option<String> {
        None
    }

    /// All counters, by name.
    fn stats(&self) -> Vec<(&'static str, u64)>;

    /// Asserts the provider's invariants.
    ///
    /// # Panics
    /// If one of them is broken: that is a bug.
    fn check(&self);
}

/// What is known of the multicast manager in a membership service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ManagerNews {
    /// It can be asked.
    Reached,
    /// It cannot be asked any more; what was asked may have been heard or not.
    Lost,
    /// It has answered.
    Answered(Vec<u8>),
}

/// What a membership provider tells its driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MembershipEvent {
    /// A group's view changed.
    View(ViewChange),
    /// This node can be reached there; comes before any view change that names it.
    Met(NodeId, Endpoint),
    /// This node is gone; comes after the view changes that remove it.
    Parted(NodeId),
    /// [`Membership::is_settled`] has become true for the first time.
    Settled,
    /// The membership service is not reached: views stay as they were last known.
    Away,
    /// The membership service is there again, and all views are as it says.
    Returned,
    /// A member that joined earlier has the group with other settings: this node's join is void
    /// and already undone.
    Refused(GroupId, JoinError),
}

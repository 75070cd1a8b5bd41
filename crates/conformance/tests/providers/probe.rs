//! A membership provider as a machine of the world.
//!
//! It asserts for every event that nodes are met before they are in a view, and part after they
//! have left all views. Versions must grow by one, no change may be repeated or have no effect, and
//! a node must settle once.

use std::collections::{BTreeMap, BTreeSet};

use carom_proto::membership::link::{LinkCommand, LinkEvent, LinkId};
use carom_proto::membership::{Membership, MembershipEvent};
use carom_proto::{
    Endpoint, GroupId, GroupSettings, JoinError, NodeId, Time, Transmit, View, ViewChange, Wakeup,
};
use carom_sim::Machine;

/// One node, with the events of its provider so far.
pub(crate) struct Probe {
    pub(crate) membership: Box<dyn Membership>,
    pub(crate) id: NodeId,
    pub(crate) met: BTreeSet<NodeId>,
    pub(crate) views: BTreeMap<GroupId, View>,
    pub(crate) changes: Vec<ViewChange>,
    pub(crate) has_settled: bool,
    pub(crate) refused: Vec<(GroupId, JoinError)>,
}

impl Probe {
    pub(crate) fn new(id: NodeId, membership: Box<dyn Membership>) -> Self {
        Self {
            membership,
            id,
            met: BTreeSet::new(),
            views: BTreeMap::new(),
            changes: Vec::new(),
            has_settled: false,
            refused: Vec::new(),
        }
    }

    pub(crate) fn join(
        &mut self,
        now: Time,
        group: GroupId,
        settings: GroupSettings,
    ) -> Result<(), JoinError> {
        self.membership.join(now, group, settings)?;
        self.views.insert(group, View::default());
        self.take_events();
        Ok(())
    }

    pub(crate) fn leave(&mut self, now: Time, group: GroupId) {
        self.membership.leave(now, group);
        self.views.remove(&group);
        self.take_events();
    }

    pub(crate) fn shut_down(&mut self, now: Time) {
        self.membership.shut_down(now);
        self.take_events();
    }

    fn take_events(&mut self) {
        while let Some(event) = self.membership.poll_event() {
            self.on_event(event);
        }
    }

    fn on_event(&mut self, event: MembershipEvent) {
        match event {
            MembershipEvent::Met(node, at) => {
                assert_ne!(node, self.id, "a node met itself");
                assert!(!at.0.ip().is_unspecified(), "a node was met nowhere");
                assert!(self.met.insert(node), "{node:?} was met twice");
            }
            MembershipEvent::Parted(node) => {
                assert!(self.met.remove(&node), "parted from a stranger");
                let still = self.views.values().any(|view| view.contains(node));
                assert!(!still, "{node:?} is gone but still in a view");
            }
            MembershipEvent::View(change) => {
                assert!(self.met.contains(&change.node), "a stranger in a view");
                // Events of a group that was just left may still be queued.
                let Some(view) = self.views.get_mut(&change.group) else { return };
                assert_eq!(change.version, view.version() + 1, "a version was left out");
                assert!(view.apply(&change), "{change:?} changed nothing");
                self.changes.push(change);
            }
            MembershipEvent::Settled => {
                assert!(!core::mem::replace(&mut self.has_settled, true), "settled twice");
            }
            MembershipEvent::Away | MembershipEvent::Returned => {}
            MembershipEvent::Refused(group, error) => {
                assert!(self.views.remove(&group).is_some(), "refused but not joined");
                self.refused.push((group, error));
            }
        }
    }
}

impl Machine for Probe {
    type Command = ();
    type Event = ();

    fn handle_datagram(&mut self, now: Time, source: Endpoint, datagram: &[u8]) {
        self.membership.handle_datagram(now, source, datagram);
        self.take_events();
    }

    fn handle_timeout(&mut self, now: Time) {
        self.membership.handle_timeout(now);
        self.take_events();
    }

    fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Transmit> {
        self.membership.poll_transmit(out)
    }

    fn handle_link(&mut self, now: Time, link: LinkId, event: LinkEvent<'_>) {
        self.membership.handle_link(now, link, event);
        self.take_events();
    }

    fn poll_link(&mut self) -> Option<LinkCommand> {
        self.membership.poll_link()
    }

    fn poll_timeout(&self) -> Option<Wakeup> {
        self.membership.poll_timeout()
    }

    fn check(&self) {
        self.membership.check();
    }
}

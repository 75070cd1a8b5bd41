//! A membership provider as a machine of the world.
//!
//! It asserts for every event that nodes are met before they are in a view, and part after they
//! have left all views. Versions must increase by one, no change may be repeated or have no effect,
//! and a node may settle only once.

use std::collections::{BTreeMap, BTreeSet};

use carom_proto::membership::link::{LinkCommand, LinkEvent, LinkId};
use carom_proto::membership::{Membership, MembershipEvent};
use carom_proto::wire::Datagram;
use carom_proto::{
    Destination, Endpoint, GroupId, GroupSettings, JoinError, NodeId, Time, Transmit, View,
    ViewChange, ViewChangeKind, Wakeup,
};
use carom_sim::Machine;

pub(crate) struct Probe {
    pub(crate) membership: Box<dyn Membership>,
    pub(crate) id: NodeId,
    pub(crate) met: BTreeSet<NodeId>,
    pub(crate) views: BTreeMap<GroupId, View>,
    pub(crate) changes: Vec<(Time, ViewChange)>,
    pub(crate) settled_at: Option<Time>,
    pub(crate) is_away: bool,
    pub(crate) refused: Vec<(GroupId, JoinError)>,
    pub(crate) is_deaf: bool,
    /// `true` if a known node can be reported again with another address.
    pub(crate) may_move: bool,
    /// `true` if events of a group that was just left may still be queued.
    pub(crate) may_report_left_groups: bool,
    addresses: BTreeMap<NodeId, Endpoint>,
    pub(crate) sent: BTreeMap<Endpoint, u64>,
    pub(crate) kept: Option<Vec<Vec<u8>>>,
    pub(crate) answer: Option<Answer>,
    pub(crate) unparsed: u64,
    now: Time,
}

pub(crate) type Answer = Box<dyn FnMut(Endpoint, &[u8]) -> Option<Vec<u8>>>;

impl Probe {
    pub(crate) fn new(id: NodeId, membership: Box<dyn Membership>) -> Self {
        Self {
            membership,
            id,
            met: BTreeSet::new(),
            views: BTreeMap::new(),
            changes: Vec::new(),
            settled_at: None,
            is_away: false,
            refused: Vec::new(),
            is_deaf: false,
            may_move: false,
            may_report_left_groups: false,
            addresses: BTreeMap::new(),
            sent: BTreeMap::new(),
            kept: None,
            answer: None,
            unparsed: 0,
            now: Time::ZERO,
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
        self.take_events(now);
        Ok(())
    }

    pub(crate) fn leave(&mut self, now: Time, group: GroupId) {
        self.membership.leave(now, group);
        self.views.remove(&group);
        self.take_events(now);
    }

    pub(crate) fn shut_down(&mut self, now: Time) {
        self.membership.shut_down(now);
        self.take_events(now);
    }

    pub(crate) fn take_events(&mut self, now: Time) {
        self.now = now;
        while let Some(event) = self.membership.poll_event() {
            self.on_event(now, event);
        }
    }

    pub(crate) fn changes_of(&self, node: NodeId, group: GroupId) -> Vec<ViewChangeKind> {
        let changes = self.changes.iter().map(|(_, change)| change);
        let of_node = changes.filter(|change| (change.node, change.group) == (node, group));
        of_node.map(|change| change.kind).collect()
    }

    pub(crate) fn count(&self, kind: ViewChangeKind) -> usize {
        self.changes.iter().filter(|(_, change)| change.kind == kind).count()
    }

    fn on_sent(&mut self, to: &Destination, datagram: &[u8]) {
        assert!(datagram.len() <= 1400, "a datagram of {} bytes", datagram.len());
        if let Some(kept) = &mut self.kept {
            kept.push(datagram.to_vec());
        }
        let Destination::Endpoint(to) = *to else { return };
        *self.sent.entry(to).or_default() += datagram.len() as u64;
        let answer = self.answer.as_mut().and_then(|answer| answer(to, datagram));
        if let Some(answer) = answer {
            self.handle_datagram(self.now, to, &answer);
        }
    }

    fn on_event(&mut self, now: Time, event: MembershipEvent) {
        match event {
            MembershipEvent::Met(node, at) => {
                assert_ne!(node, self.id, "a node met itself");
                assert!(!at.0.ip().is_unspecified(), "a node was met without an address");
                let has_moved = self.addresses.insert(node, at) != Some(at) && self.may_move;
                assert!(self.met.insert(node) || has_moved, "{node:?} was met twice");
            }
            MembershipEvent::Parted(node) => {
                assert!(self.met.remove(&node), "parted from a stranger");
                let still = self.views.values().any(|view| view.contains(node));
                assert!(!still, "{node:?} is gone but still in a view");
            }
            MembershipEvent::View(change) => {
                assert!(self.met.contains(&change.node), "a stranger in a view");
                let Some(view) = self.views.get_mut(&change.group) else {
                    assert!(self.may_report_left_groups, "{change:?} of a group not joined");
                    return;
                };
                assert_eq!(change.version, view.version() + 1, "a version was skipped");
                assert!(view.apply(&change), "{change:?} changed nothing");
                self.changes.push((now, change));
            }
            MembershipEvent::Settled => {
                assert_eq!(self.settled_at.replace(now), None, "settled twice");
            }
            MembershipEvent::Away => {
                assert!(!core::mem::replace(&mut self.is_away, true), "away twice");
            }
            MembershipEvent::Returned => {
                assert!(core::mem::replace(&mut self.is_away, false), "it was never away");
            }
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
        match Datagram::parse(datagram) {
            _ if self.is_deaf => {}
            Ok(datagram) => {
                self.membership.handle_datagram(now, source, &datagram);
                self.take_events(now);
            }
            Err(_) => self.unparsed += 1,
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.membership.handle_timeout(now);
        self.take_events(now);
    }

    fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Transmit> {
        let begin = out.len();
        loop {
            let transmit = self.membership.poll_transmit(out)?;
            if !self.is_deaf {
                self.on_sent(&transmit.destination, &out[begin..]);
                return Some(transmit);
            }
            out.truncate(begin);
        }
    }

    fn handle_link(&mut self, now: Time, link: LinkId, event: LinkEvent<'_>) {
        self.membership.handle_link(now, link, event);
        self.take_events(now);
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

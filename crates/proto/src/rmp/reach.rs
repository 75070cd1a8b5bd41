//! Hosts without multicast (3.4): whom a packet to the group has to be sent to besides.
//!
//! Who takes part without multicast says so when it joins, and stands so in the view. Whoever
//! multicasts sends it a copy by unicast; its own packets to the group go by unicast to a member
//! that multicasts them on, and to the others like it.
//!
//! This is for drivers that only carry out what an engine says. The runtime of Carom finds out by
//! itself which members its multicast reaches, and copies for the others: its nodes join as if they
//! all had multicast.

use alloc::vec::Vec;

use super::around::Around;
use super::group::Group;
use super::{Rmp, packet};
use crate::wire::{self, Header};
use crate::{Class, Destination, GroupId, NodeId, Transmit};

/// Who is reached how, apart from the group's multicast.
#[derive(Debug, Default)]
pub(super) struct Reach {
    /// Whether this node has no multicast.
    pub(super) is_without: bool,
    /// Others that have none.
    pub(super) copies: Vec<NodeId>,
    /// Members that pass on what this node sends to the group.
    pub(super) relays: Vec<NodeId>,
}

impl Rmp {
    /// Who is in the group multicasts on what was sent to it for that (3.4).
    pub(super) fn forward(&mut self, header: &Header, datagram: &[u8]) {
        let group = header.group;
        if header.flags & packet::FORWARD == 0 || !self.is_in(group) {
            return;
        }
        self.counters.forwarded += 1;
        let transmit = Transmit { destination: Destination::Group(group), class: Class::Data };
        self.outbox.push(transmit, |out| {
            let start = out.len();
            out.extend_from_slice(datagram);
            wire::clear_flags(out, start, packet::FORWARD);
        });
    }

    /// Members without multicast get copies of what a guest has sent to the group.
    pub(super) fn copy_of_guest(&mut self, group: GroupId, datagram: &[u8]) {
        let Some(state) = self.groups.get(&group) else { return };
        for node in state.copies_of_guests() {
            let transmit = Transmit { destination: Destination::Node(*node), class: Class::Data };
            self.outbox.push(transmit, |out| {
                let start = out.len();
                out.extend_from_slice(datagram);
                wire::clear_flags(out, start, packet::FORWARD);
            });
        }
    }
}

impl Group {
    /// Whom this member sends copies of guests' packets: a guest knows no view, so the first member
    /// with multicast does it for all those without.
    pub(super) fn copies_of_guests(&self) -> &[NodeId] {
        let members = self.ring.iter().flat_map(|ring| &ring.view().members);
        let first =
            members.filter(|member| member.is_multicast).map(|member| member.process).next();
        if first == Some(self.me) { &self.reach.copies } else { &[] }
    }

    /// The members changed, or what is known of them before there is a ring.
    pub(super) fn refresh_reach(&self, cx: &mut Around<'_>) {
        let is_without = !self.terms.is_multicast;
        let (mut copies, mut relays) = (Vec::new(), Vec::new());
        let members = self.ring.iter().flat_map(|ring| &ring.view().members);
        for member in members.filter(|member| member.process != self.me) {
            if !member.is_multicast {
                copies.push(member.process.node);
            } else if is_without {
                relays.push(member.process.node);
            }
        }
        if is_without {
            // Until it is in a ring, and while that is only its own, it asks whoever it knows of.
            if self.ring.as_ref().is_none_or(|ring| ring.view().len() == 1) {
                relays.extend(self.known.iter().chain(&self.terms.via));
            }
        }
        *cx.reach = Reach { is_without, copies, relays };
    }
}

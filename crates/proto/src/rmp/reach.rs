//! Hosts without multicast (3.4): copies and relays in addition to the group's multicast.
//!
//! A host without multicast declares this when it joins, and the view records it. Each sender of a
//! multicast sends it a copy by unicast. Its own packets to the group go by unicast to a member
//! that multicasts them, and to the other members without multicast.
//!
//! This is for drivers that only send what an engine requests. The runtime of Carom detects itself
//! which members its multicast reaches, and sends copies to the others. Its nodes join as if all of
//! them had multicast.

use alloc::vec::Vec;

use super::around::Around;
use super::group::Group;
use super::{Rmp, packet};
use crate::wire::{self, Header};
use crate::{Class, Destination, GroupId, NodeId, Transmit};

/// Destinations in addition to the group's multicast.
#[derive(Debug, Default)]
pub(super) struct Reach {
    /// `true` if this node has no multicast.
    pub(super) is_without: bool,
    /// Other members without multicast.
    pub(super) copies: Vec<NodeId>,
    /// Members that forward this node's packets to the group.
    pub(super) relays: Vec<NodeId>,
}

impl Rmp {
    /// Multicasts a packet that a host without multicast has sent for this purpose (3.4). Only
    /// nodes in the group do.
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

    /// Sends copies of a guest's packet to the members without multicast.
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
    /// Returns the members to which this member sends copies of guests' packets. A guest has no
    /// view, so the first member with multicast sends copies to all members without.
    pub(super) fn copies_of_guests(&self) -> &[NodeId] {
        let members = self.ring.iter().flat_map(|ring| &ring.view().members);
        let first =
            members.filter(|member| member.is_multicast).map(|member| member.process).next();
        if first == Some(self.me) { &self.reach.copies } else { &[] }
    }

    /// Computes the destinations anew, after a change of the members or of the known nodes.
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
            // Without a ring, or alone in its own, every node that it has heard of may be a relay.
            if self.ring.as_ref().is_none_or(|ring| ring.view().len() == 1) {
                relays.extend(self.known.iter().chain(&self.terms.via));
            }
        }
        *cx.reach = Reach { is_without, copies, relays };
    }
}

//! Hosts without multicast (3.4): copies and relays in addition to the group's multicast.
//!
//! A host without multicast declares this when it joins, and the view records it. Each sender of a
//! multicast also sends a copy to that host by unicast. The host sends its own packets by unicast
//! to a member that multicasts them, and to the other members without multicast. Carom's runtime
//! sends such copies itself, so its nodes join as if all of them had multicast.

use alloc::vec::Vec;

use crate::NodeId;
use crate::ring::{Process, RingView};

#[derive(Debug, Default)]
pub(super) struct Reach {
    pub(super) is_without: bool,
    pub(super) copies: Vec<NodeId>,
    pub(super) relays: Vec<NodeId>,
}

impl Reach {
    /// A node without multicast that is alone or in no ring uses all `known` nodes as relays.
    pub(super) fn new(
        me: Process,
        view: Option<&RingView>,
        is_without: bool,
        known: impl Iterator<Item = NodeId>,
    ) -> Self {
        let mut reach = Self { is_without, ..Self::default() };
        let members = view.into_iter().flat_map(|view| &view.members);
        for member in members.filter(|member| member.process != me) {
            if !member.is_multicast {
                reach.copies.push(member.process.node);
            } else if is_without {
                reach.relays.push(member.process.node);
            }
        }
        if is_without && view.is_none_or(|view| view.len() == 1) {
            reach.relays.extend(known);
        }
        reach
    }
}

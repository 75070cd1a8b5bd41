//! Which start of each node is the current one.

use alloc::collections::BTreeMap;

use crate::wire::{Header, Peek};
use crate::{Endpoint, Incarnation, NodeId};

/// The nodes that were met, with the incarnations that their datagrams carry.
#[derive(Debug, Default)]
pub(super) struct Starts {
    nodes: BTreeMap<NodeId, Known>,
}

#[derive(Debug)]
struct Known {
    endpoint: Endpoint,
    current: Option<Incarnation>,
    /// The one before, whose last datagrams may still be on their way.
    over: Option<Incarnation>,
}

/// What a datagram's incarnation says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// It is the current one, or nothing is known of the node.
    Known,
    /// The node was started again.
    New,
    /// It is over, or cannot be believed.
    Over,
}

impl Starts {
    /// The node is reached there.
    pub(super) fn meet(&mut self, node: NodeId, endpoint: Endpoint) {
        let known = Known { endpoint, current: None, over: None };
        self.nodes.entry(node).or_insert(known).endpoint = endpoint;
    }

    /// The node is gone.
    pub(super) fn part(&mut self, node: NodeId) {
        self.nodes.remove(&node);
    }

    /// Returns which start a datagram comes from. A new one is believed only if the datagram is
    /// whole and came from the address at which the node is reached.
    pub(super) fn look(&mut self, source: Endpoint, peek: Peek, datagram: &[u8]) -> Start {
        let Some(known) = self.nodes.get_mut(&peek.sender) else { return Start::Known };
        if known.current == Some(peek.incarnation) {
            return Start::Known;
        }
        let is_credible = source == known.endpoint && Header::decode(datagram).is_ok();
        match known.current {
            None if is_credible => {
                known.current = Some(peek.incarnation);
                Start::Known
            }
            None => Start::Known,
            Some(_) if known.over == Some(peek.incarnation) || !is_credible => Start::Over,
            Some(before) => {
                known.over = Some(before);
                known.current = Some(peek.incarnation);
                Start::New
            }
        }
    }
}

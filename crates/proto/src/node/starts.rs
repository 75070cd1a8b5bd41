//! Which start of each node is the current one.

use alloc::collections::BTreeMap;
use core::time::Duration;

use crate::wire::{Header, Peek};
use crate::{Endpoint, Incarnation, NodeId, Time};

/// The nodes that were met, with the incarnations that their datagrams carry.
#[derive(Debug, Default)]
pub struct Starts {
    nodes: BTreeMap<NodeId, Known>,
}

#[derive(Debug)]
struct Known {
    endpoint: Endpoint,
    current: Option<Incarnation>,
    /// The one before, whose last datagrams may still be on their way.
    over: Option<Incarnation>,
    /// When the current one was heard last.
    heard_at: Time,
}

/// What a datagram's incarnation says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// It is the current one, or nothing is known of the node.
    Known,
    /// The node was started again.
    New,
    /// It is over, or cannot be believed.
    Over,
}

impl Starts {
    /// The node is reached there.
    pub fn meet(&mut self, node: NodeId, endpoint: Endpoint) {
        let known = Known { endpoint, current: None, over: None, heard_at: Time::ZERO };
        self.nodes.entry(node).or_insert(known).endpoint = endpoint;
    }

    /// The node is gone.
    pub fn part(&mut self, node: NodeId) {
        self.nodes.remove(&node);
    }

    /// Returns `true` unless a datagram in the name of a node that is heard from its own address
    /// comes from another one. Another node may have passed it on.
    pub fn is_credible(&self, source: Endpoint, sender: NodeId) -> bool {
        let Some(known) = self.nodes.get(&sender).filter(|it| it.current.is_some()) else {
            return true;
        };
        known.endpoint == source || self.nodes.values().any(|other| other.endpoint == source)
    }

    /// Returns which start a datagram comes from. A new one is believed only if the datagram is
    /// whole and came from the address at which the node is reached. One that was taken for over is
    /// the current one after all if the other is silent: what was heard of that came late.
    pub fn look(&mut self, now: Time, source: Endpoint, peek: Peek, datagram: &[u8]) -> Start {
        let Some(known) = self.nodes.get_mut(&peek.sender) else { return Start::Known };
        if known.current == Some(peek.incarnation) {
            known.heard_at = now;
            return Start::Known;
        }
        let is_credible = source == known.endpoint && Header::decode(datagram).is_ok();
        let is_over = known.over == Some(peek.incarnation) && now < known.heard_at + LATE_FOR;
        match known.current {
            None if is_credible => {
                (known.current, known.heard_at) = (Some(peek.incarnation), now);
                Start::Known
            }
            None => Start::Known,
            Some(_) if is_over || !is_credible => Start::Over,
            Some(before) => {
                known.over = Some(before);
                (known.current, known.heard_at) = (Some(peek.incarnation), now);
                Start::New
            }
        }
    }
}

/// Datagrams of a start that is over are on their way no longer than this.
const LATE_FOR: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::GroupId;
    use crate::wire::{self, Protocol};

    const AT: Endpoint = Endpoint(core::net::SocketAddr::new(
        core::net::IpAddr::V4(core::net::Ipv4Addr::LOCALHOST),
        7,
    ));

    fn look(starts: &mut Starts, ms: u64, incarnation: u64) -> Start {
        let (protocol, group, sender) = (Protocol::Lateral, GroupId(1), NodeId(2));
        let incarnation = Incarnation(incarnation);
        let header = Header { protocol, kind: 1, flags: 0, group, sender, incarnation, view: 0 };
        let mut datagram = Vec::new();
        header.begin(&mut datagram);
        wire::seal(&mut datagram, 0);
        let peek = Header::peek(&datagram).expect("it is Carom's");
        starts.look(Time(ms * 1_000_000), AT, peek, &datagram)
    }

    #[test]
    fn start_is_current_again_once_late_datagrams_of_the_former_end() {
        let mut starts = Starts::default();
        starts.meet(NodeId(2), AT);
        assert_eq!(look(&mut starts, 1, 22), Start::Known);
        assert_eq!(look(&mut starts, 2, 21), Start::New, "nothing tells that it came late");
        assert_eq!(look(&mut starts, 900, 22), Start::Over);
        assert_eq!(look(&mut starts, 1_002, 22), Start::New);
        assert_eq!(look(&mut starts, 1_003, 22), Start::Known);
        assert_eq!(look(&mut starts, 1_004, 21), Start::Over);
    }
}

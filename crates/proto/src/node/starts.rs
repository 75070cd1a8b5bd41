//! Which start of each node is the current one.

use alloc::collections::BTreeMap;

use crate::incarnations::Incarnations;
pub use crate::incarnations::Start;
use crate::wire::{Header, Peek};
use crate::{Endpoint, NodeId, Time};

/// The nodes that were met, with the incarnations that their datagrams carry.
#[derive(Debug, Default)]
pub struct Starts {
    nodes: BTreeMap<NodeId, Known>,
}

#[derive(Debug)]
struct Known {
    endpoint: Endpoint,
    incarnations: Incarnations,
}

impl Starts {
    /// The node is reached there.
    pub fn meet(&mut self, node: NodeId, endpoint: Endpoint) {
        let known = Known { endpoint, incarnations: Incarnations::default() };
        self.nodes.entry(node).or_insert(known).endpoint = endpoint;
    }

    /// The node is gone.
    pub fn part(&mut self, node: NodeId) {
        self.nodes.remove(&node);
    }

    /// Returns `true` unless a datagram in the name of a node that is heard from its own address
    /// comes from another one. Another node may have passed it on.
    pub fn is_credible(&self, source: Endpoint, sender: NodeId) -> bool {
        let Some(known) = self.nodes.get(&sender).filter(|it| it.incarnations.current().is_some())
        else {
            return true;
        };
        known.endpoint == source || self.nodes.values().any(|other| other.endpoint == source)
    }

    /// Returns which start a datagram comes from. A new one is believed only if the datagram is
    /// whole and came from the address at which the node is reached.
    pub fn look(&mut self, now: Time, source: Endpoint, peek: Peek, datagram: &[u8]) -> Start {
        let Some(known) = self.nodes.get_mut(&peek.sender) else { return Start::Known };
        let endpoint = known.endpoint;
        let is_credible = || source == endpoint && Header::decode(datagram).is_ok();
        known.incarnations.look(now, peek.incarnation, is_credible)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::wire::{self, Protocol};
    use crate::{GroupId, Incarnation};

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

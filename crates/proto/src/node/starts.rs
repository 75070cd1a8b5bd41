//! Which start of each node is the current one.

use alloc::collections::{BTreeMap, VecDeque};

use crate::incarnations::Incarnations;
pub use crate::incarnations::Start;
use crate::wire::{Header, Peek, Protocol};
use crate::{Endpoint, NodeId, Time, lateral};

/// The nodes that were met, with the incarnations that their datagrams carry.
#[derive(Debug, Default)]
pub struct Starts {
    nodes: BTreeMap<NodeId, Known>,
    /// Nodes that were heard and are gone, the last in the end. A ring holds them for a while.
    gone: VecDeque<(NodeId, Endpoint)>,
}

#[derive(Debug)]
struct Known {
    endpoint: Endpoint,
    incarnations: Incarnations,
}

impl Starts {
    /// The node is reached there.
    pub fn meet(&mut self, node: NodeId, endpoint: Endpoint) {
        self.gone.retain(|(other, _)| *other != node);
        let known = Known { endpoint, incarnations: Incarnations::default() };
        self.nodes.entry(node).or_insert(known).endpoint = endpoint;
    }

    /// The node is gone.
    pub fn part(&mut self, node: NodeId) {
        let known = self.nodes.remove(&node);
        if let Some(Known { endpoint, .. }) = known.filter(Known::is_heard) {
            if self.gone.len() == MOST_GONE {
                self.gone.pop_front();
            }
            self.gone.push_back((node, endpoint));
        }
    }

    /// Returns `false` if a datagram speaks for a node that is or was heard from its own address,
    /// and comes from another address. Nodes forward packets of ordered groups for each other. Data
    /// of lateral groups is not checked: its sender is queried before it settles anything.
    pub fn is_credible(&self, source: Endpoint, peek: Peek) -> bool {
        let is_own = || self.endpoint_of(peek.sender).is_none_or(|endpoint| endpoint == source);
        match peek.protocol {
            Protocol::Lateral => !lateral::packet::is_control_of_member(peek.kind) || is_own(),
            Protocol::Ordered => {
                is_own() || self.nodes.values().any(|other| other.endpoint == source)
            }
            _ => true,
        }
    }

    /// Returns `true` if a datagram of the node has come from its own address.
    pub fn has_heard(&self, node: NodeId) -> bool {
        self.endpoint_of(node).is_some()
    }

    /// Where a node is or was heard.
    fn endpoint_of(&self, node: NodeId) -> Option<Endpoint> {
        match self.nodes.get(&node) {
            Some(known) => known.is_heard().then_some(known.endpoint),
            None => self.gone.iter().find(|(other, _)| *other == node).map(|(_, at)| *at),
        }
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

impl Known {
    fn is_heard(&self) -> bool {
        self.incarnations.current().is_some()
    }
}

/// Nodes that are gone of which the address is remembered.
const MOST_GONE: usize = 1024;

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::wire;
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
    fn node_that_is_gone_is_not_believed_from_elsewhere() {
        let mut starts = Starts::default();
        starts.meet(NodeId(2), AT);
        let mut elsewhere = AT;
        elsewhere.0.set_port(8);
        let is_credible = |starts: &Starts, source| {
            let (protocol, group, sender) = (Protocol::Ordered, GroupId(1), NodeId(2));
            let incarnation = Incarnation(22);
            starts.is_credible(source, Peek { protocol, kind: 1, group, sender, incarnation })
        };
        assert!(is_credible(&starts, elsewhere), "it may send from another address");
        look(&mut starts, 1, 22);
        for _ in 0..2 {
            let believed = [AT, elsewhere].map(|source| is_credible(&starts, source));
            assert_eq!(believed, [true, false]);
            starts.part(NodeId(2));
        }
        for number in 0..MOST_GONE as u64 {
            starts.meet(NodeId(3), AT);
            starts.meet(NodeId(2), AT);
            look(&mut starts, 2 + number, 22);
            starts.part(NodeId(2));
        }
        assert_eq!(starts.gone.len(), 1);
        starts.meet(NodeId(2), elsewhere);
        assert!(starts.gone.is_empty() && is_credible(&starts, elsewhere));
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

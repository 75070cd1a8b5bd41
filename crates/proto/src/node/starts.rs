//! The current incarnation of each node, and the rules for accepting datagrams in its name.

use alloc::collections::BTreeMap;
use core::time::Duration;

use crate::incarnations::Incarnations;
pub use crate::incarnations::Start;
use crate::recent::Recent;
use crate::wire::{Datagram, Header, Protocol};
use crate::{Endpoint, NodeId, Time};

/// Known nodes, with the incarnations in their datagrams.
#[derive(Debug, Default)]
pub struct Starts {
    nodes: BTreeMap<NodeId, Known>,
    /// Nodes that are gone, with their last endpoint and the time at which they were removed. Rings
    /// may still contain them.
    gone: Recent<NodeId, (Endpoint, Time)>,
}

#[derive(Debug)]
struct Known {
    endpoint: Endpoint,
    incarnations: Incarnations,
}

impl Starts {
    /// Sets the endpoint at which the node is reachable.
    pub fn meet(&mut self, node: NodeId, endpoint: Endpoint) {
        self.gone.remove(node);
        let known = Known { endpoint, incarnations: Incarnations::default() };
        self.nodes.entry(node).or_insert(known).endpoint = endpoint;
    }

    /// Removes a node that has failed or left.
    pub fn part(&mut self, now: Time, node: NodeId) {
        let known = self.nodes.remove(&node);
        if let Some(Known { endpoint, .. }) = known.filter(Known::is_heard) {
            self.gone.insert(node, (endpoint, now), MOST_GONE);
        }
    }

    /// Returns `true` if a datagram of the node has come from its own address.
    pub fn has_heard(&self, node: NodeId) -> bool {
        self.nodes.get(&node).map_or_else(|| self.gone.get(node).is_some(), Known::is_heard)
    }

    /// Classifies a datagram by its incarnation and its source.
    ///
    /// - A new incarnation is accepted only if the datagram is intact and came from the node's
    ///   address.
    /// - After a datagram has arrived from the node's own address, those from other addresses are
    ///   rejected.
    /// - Packets of ordered groups are accepted from the address of any known node, because nodes
    ///   forward them for each other.
    /// - Packets of a guest engine are accepted from any address, because this crate does not know
    ///   their format.
    pub fn look(&mut self, now: Time, source: Endpoint, datagram: &Datagram<'_>) -> Start {
        let Header { protocol, sender, incarnation, .. } = *datagram.header();
        let Some(known) = self.nodes.get_mut(&sender) else {
            let is_elsewhere = self.is_elsewhere(now, sender, source);
            return match is_elsewhere && !self.may_forward(source, protocol) {
                true => Start::Over,
                false => Start::Known,
            };
        };
        let is_its_address = known.endpoint == source;
        let is_elsewhere = known.is_heard() && !is_its_address;
        let is_credible = || is_its_address && datagram.body().is_ok();
        match known.incarnations.look(now, incarnation, is_credible) {
            Start::Known if is_elsewhere && !self.may_forward(source, protocol) => Start::Over,
            start => start,
        }
    }

    /// Returns `true` if datagrams have arrived from the node's own address, and `source` is
    /// another address.
    ///
    /// If the membership no longer reports the node, any address is accepted after 60 s.
    pub fn is_elsewhere(&self, now: Time, node: NodeId, source: Endpoint) -> bool {
        match self.nodes.get(&node) {
            Some(known) => known.is_heard() && known.endpoint != source,
            None => self
                .gone
                .get(node)
                .is_some_and(|(at, since)| *at != source && now < *since + GONE_FOR),
        }
    }

    fn may_forward(&self, source: Endpoint, protocol: Protocol) -> bool {
        match protocol {
            Protocol::Ordered => self.nodes.values().any(|other| other.endpoint == source),
            Protocol::Guest => true,
            _ => false,
        }
    }
}

impl Known {
    fn is_heard(&self) -> bool {
        self.incarnations.current().is_some()
    }
}

/// Time for which datagrams of a node that is gone are accepted only from its last address. Rings
/// remove such a node sooner.
const GONE_FOR: Duration = Duration::from_secs(60);
const MOST_GONE: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GroupId, Incarnation, Origin};

    const AT: Endpoint = Endpoint(core::net::SocketAddr::new(
        core::net::IpAddr::V4(core::net::Ipv4Addr::LOCALHOST),
        7,
    ));

    fn look(starts: &mut Starts, ms: u64, incarnation: u64) -> Start {
        let datagram = header(Protocol::Lateral, incarnation).datagram(&[]);
        let datagram = Datagram::parse(&datagram).expect("it is Carom's");
        starts.look(Time(ms * 1_000_000), AT, &datagram)
    }

    fn header(protocol: Protocol, incarnation: u64) -> Header {
        let origin = Origin { node: NodeId(2), incarnation: Incarnation(incarnation) };
        Header::new(protocol, 1, GroupId(1), origin)
    }

    #[test]
    fn node_that_is_gone_is_not_believed_from_elsewhere() {
        let mut starts = Starts::default();
        starts.meet(NodeId(2), AT);
        let mut elsewhere = AT;
        elsewhere.0.set_port(8);
        let is_believed = |starts: &mut Starts, protocol, source| {
            let datagram = Datagram::with_header(header(protocol, 22), &[]);
            starts.look(Time(5_000_000), source, &datagram) != Start::Over
        };
        let is_credible =
            |starts: &mut Starts, source| is_believed(starts, Protocol::Ordered, source);
        assert!(is_credible(&mut starts, elsewhere), "it may send from another address");
        look(&mut starts, 1, 22);
        for _ in 0..2 {
            let believed = [AT, elsewhere].map(|source| is_credible(&mut starts, source));
            assert_eq!(believed, [true, false]);
            for protocol in [Protocol::Lateral, Protocol::Bulk] {
                assert!(is_believed(&mut starts, protocol, AT));
                assert!(!is_believed(&mut starts, protocol, elsewhere), "{protocol:?}");
            }
            starts.part(Time(5_000_000), NodeId(2));
        }
        for number in 0..MOST_GONE as u64 {
            starts.meet(NodeId(3), AT);
            starts.meet(NodeId(2), AT);
            look(&mut starts, 2 + number, 22);
            starts.part(Time(5_000_000), NodeId(2));
        }
        assert_eq!(starts.gone.len(), 1);
        let later = Time(5_000_000) + GONE_FOR;
        assert!(starts.is_elsewhere(Time(6_000_000), NodeId(2), elsewhere));
        assert!(!starts.is_elsewhere(later, NodeId(2), elsewhere), "it may have moved since");
        starts.meet(NodeId(2), elsewhere);
        assert_eq!(starts.gone.len(), 0);
        assert!(is_credible(&mut starts, elsewhere));
    }

    #[test]
    fn start_is_current_again_once_late_datagrams_of_the_former_end() {
        let mut starts = Starts::default();
        starts.meet(NodeId(2), AT);
        assert_eq!(look(&mut starts, 1, 22), Start::Known);
        assert_eq!(look(&mut starts, 2, 21), Start::New, "a late datagram cannot be recognized");
        assert_eq!(look(&mut starts, 900, 22), Start::Over);
        assert_eq!(look(&mut starts, 1_002, 22), Start::New);
        assert_eq!(look(&mut starts, 1_003, 22), Start::Known);
        assert_eq!(look(&mut starts, 1_004, 21), Start::Over);
    }
}

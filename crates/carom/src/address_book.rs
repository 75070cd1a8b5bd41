//! Which node is reached at which address.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use carom_proto::{Endpoint, NodeId};

/// The addresses of the nodes that were met, and of some that were only heard.
#[derive(Debug, Default)]
pub(crate) struct AddressBook {
    addresses: HashMap<NodeId, SocketAddr>,
    /// Nodes that send to a group of ours and that the membership has not told of: a partial view
    /// does not show them. They can be answered, and asked for what they sent.
    strangers: HashMap<NodeId, SocketAddr>,
    /// Who was heard last: it is not looked up again.
    heard: Option<(NodeId, SocketAddr)>,
}

/// Strangers that are remembered; with more of them all are learnt anew.
const MAX_STRANGERS: usize = 4096;

impl AddressBook {
    /// Enters `node`; refuses an address that no node can have.
    pub(crate) fn enter(&mut self, node: NodeId, endpoint: Endpoint) -> bool {
        let usable = is_usable(endpoint.0);
        if usable {
            self.addresses.insert(node, endpoint.0);
            self.strangers.remove(&node);
        }
        usable
    }

    /// A whole datagram of this node's came from there.
    pub(crate) fn hear(&mut self, node: NodeId, source: Endpoint) {
        if self.heard == Some((node, source.0)) {
            return;
        }
        self.heard = Some((node, source.0));
        if self.addresses.contains_key(&node) || !is_usable(source.0) {
            return;
        }
        if self.strangers.len() >= MAX_STRANGERS && !self.strangers.contains_key(&node) {
            self.strangers.clear();
        }
        self.strangers.insert(node, source.0);
    }

    pub(crate) fn remove(&mut self, node: NodeId) {
        self.addresses.remove(&node);
        self.heard = None;
    }

    pub(crate) fn address(&self, node: NodeId) -> Option<SocketAddr> {
        self.addresses.get(&node).or_else(|| self.strangers.get(&node)).copied()
    }
}

/// Whether a single host can be reached at `address` by our sockets. What others tell about
/// addresses must not make this node send to a broadcast or multicast address.
pub(crate) fn is_usable(address: SocketAddr) -> bool {
    match address.ip() {
        IpAddr::V4(ip) => {
            let single = !(ip.is_multicast() || ip.is_broadcast() || ip.is_unspecified());
            single && address.port() != 0
        }
        IpAddr::V6(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_single_hosts_are_entered() {
        let mut book = AddressBook::default();
        for bad in ["239.0.0.1:1", "255.255.255.255:1", "0.0.0.0:1", "10.0.0.1:0", "[::1]:1"] {
            assert!(!book.enter(NodeId(1), Endpoint(bad.parse().expect(bad))), "{bad}");
        }
        assert!(book.addresses.is_empty());
        let good = "10.0.0.1:7400".parse().expect("an address");
        assert!(book.enter(NodeId(1), Endpoint(good)));
        assert_eq!(book.address(NodeId(1)), Some(good));
        book.remove(NodeId(1));
        assert_eq!(book.address(NodeId(1)), None);
    }

    #[test]
    fn who_was_only_heard_can_be_answered_until_the_membership_knows_better() {
        let mut book = AddressBook::default();
        let endpoint = |text: &str| Endpoint(text.parse().expect("an address"));
        let (heard, met) = (endpoint("10.0.0.1:7400"), endpoint("10.0.0.2:7400"));
        book.hear(NodeId(1), heard);
        assert_eq!(book.address(NodeId(1)), Some(heard.0));
        assert!(book.enter(NodeId(1), met));
        book.hear(NodeId(1), heard);
        assert_eq!(book.address(NodeId(1)), Some(met.0));
        book.remove(NodeId(1));
        assert_eq!(book.address(NodeId(1)), None, "who has gone is not there");
        book.hear(NodeId(1), heard);
        assert_eq!(book.address(NodeId(1)), Some(heard.0), "or is it");
        book.hear(NodeId(2), endpoint("0.0.0.0:1"));
        assert_eq!(book.address(NodeId(2)), None);
        for node in 0..2 * MAX_STRANGERS as u64 {
            book.hear(NodeId(node), heard);
        }
        assert!(book.strangers.len() <= MAX_STRANGERS);
    }
}

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use carom_proto::{Endpoint, NodeId, Time};

use super::strangers::Strangers;

#[derive(Debug)]
pub(crate) struct AddressBook {
    addresses: HashMap<NodeId, SocketAddr>,
    pub(crate) strangers: Strangers,
    last_sender: Option<(NodeId, SocketAddr)>,
}

impl AddressBook {
    pub(crate) fn new(seed: u64) -> Self {
        Self { addresses: HashMap::new(), strangers: Strangers::new(seed), last_sender: None }
    }

    pub(crate) fn enter(&mut self, node: NodeId, endpoint: Endpoint) -> bool {
        let usable = is_usable(endpoint.0);
        if usable {
            self.addresses.insert(node, endpoint.0);
            self.strangers.remove(node);
        }
        usable
    }

    /// Records the source of a datagram. Returns the nonce of a probe if the node is a stranger and
    /// must be probed.
    pub(crate) fn on_datagram(
        &mut self,
        now: Time,
        node: NodeId,
        Endpoint(source): Endpoint,
        bytes: usize,
    ) -> Option<u32> {
        if self.last_sender == Some((node, source)) || !is_usable(source) {
            return None;
        }
        if self.addresses.contains_key(&node) || self.strangers.is_proven(node, source) {
            self.last_sender = Some((node, source));
            return None;
        }
        self.last_sender = None;
        self.strangers.on_datagram(now, node, source, bytes)
    }

    pub(crate) fn remove(&mut self, node: NodeId) {
        self.addresses.remove(&node);
        self.last_sender = None;
    }

    pub(crate) fn address(&self, node: NodeId) -> Option<SocketAddr> {
        self.addresses.get(&node).copied().or_else(|| self.strangers.address(node))
    }
}

/// Returns `true` for the IPv4 address of one host with a port other than 0. A report by another
/// node must never make this node send to a multicast address or to all hosts.
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
        let mut book = AddressBook::new(1);
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
    fn stranger_is_answered_at_its_source_until_membership_knows_it() {
        let mut book = AddressBook::new(1);
        let receive = |book: &mut AddressBook, node, source| {
            book.on_datagram(Time::ZERO, NodeId(node), source, 54);
        };
        let endpoint = |text: &str| Endpoint(text.parse().expect("an address"));
        let (heard, met) = (endpoint("10.0.0.1:7400"), endpoint("10.0.0.2:7400"));
        receive(&mut book, 1, heard);
        assert_eq!(book.address(NodeId(1)), Some(heard.0));
        assert!(book.enter(NodeId(1), met));
        receive(&mut book, 1, heard);
        assert_eq!(book.address(NodeId(1)), Some(met.0));
        book.remove(NodeId(1));
        assert_eq!(book.address(NodeId(1)), None, "it has left");
        receive(&mut book, 1, heard);
        assert_eq!(book.address(NodeId(1)), Some(heard.0), "it is a stranger again");
        receive(&mut book, 2, endpoint("0.0.0.0:1"));
        assert_eq!(book.address(NodeId(2)), None);
    }
}

//! Which node is reached at which address.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use carom_proto::{Endpoint, NodeId};

/// The addresses of the nodes that were met.
#[derive(Debug, Default)]
pub(crate) struct AddressBook {
    addresses: HashMap<NodeId, SocketAddr>,
}

impl AddressBook {
    /// Enters `node`; refuses an address that no node can have.
    pub(crate) fn enter(&mut self, node: NodeId, endpoint: Endpoint) -> bool {
        let usable = is_usable(endpoint.0);
        if usable {
            self.addresses.insert(node, endpoint.0);
        }
        usable
    }

    pub(crate) fn remove(&mut self, node: NodeId) {
        self.addresses.remove(&node);
    }

    pub(crate) fn address(&self, node: NodeId) -> Option<SocketAddr> {
        self.addresses.get(&node).copied()
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
}

use core::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use carom_proto::Endpoint;

/// The index of a host in its world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostIx(pub u32);

/// The index of a host or switch. Hosts come first.
pub(crate) type NodeIx = u32;
pub(crate) type LinkIx = u32;
pub(crate) type CableIx = u32;
pub(crate) type PacketIx = u32;

impl HostIx {
    /// Returns the host's address: 10.x.y.z with port 7400.
    pub fn endpoint(self) -> Endpoint {
        let [_, x, y, z] = (self.0 + 1).to_be_bytes();
        Endpoint(SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, x, y, z)), PORT))
    }

    pub(crate) fn at(endpoint: Endpoint) -> Option<Self> {
        let SocketAddr::V4(address) = endpoint.0 else { return None };
        let [ten, x, y, z] = address.ip().octets();
        let number = u32::from_be_bytes([0, x, y, z]);
        (ten == 10 && address.port() == PORT && number > 0).then(|| Self(number - 1))
    }
}

impl fmt::Display for HostIx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "h{}", self.0)
    }
}

pub(crate) const PORT: u16 = 7400;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_found_at_its_address() {
        for number in [0, 1, 254, 255, 70_000] {
            let host = HostIx(number);
            assert_eq!(HostIx::at(host.endpoint()), Some(host));
        }
        assert_eq!(HostIx(0).endpoint().to_string(), "10.0.0.1:7400");
        assert_eq!(HostIx::at(Endpoint("10.0.0.1:80".parse().expect("an address"))), None);
    }
}

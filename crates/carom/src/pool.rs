//! The multicast addresses that groups are spread over.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use carom_proto::GroupId;

/// A budget of multicast addresses: kernels, network cards and switches hold few, so the groups
/// share the addresses of a pool and are told apart by the header. All nodes that are to hear one
/// another must have the same pool.
///
/// Written as `FIRST+COUNT`, such as `239.77.0.1+1024`; the hello address may follow after a
/// slash: `239.77.0.1+1024/239.77.255.1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MulticastPool {
    /// The first address.
    pub first: Ipv4Addr,
    /// How many addresses, at least 1.
    pub count: u16,
    /// Where nodes say hello; outside of the pool.
    pub hello: Ipv4Addr,
}

impl MulticastPool {
    /// The address of `group`: its id, which is a hash already, spread over the pool.
    pub fn address(&self, group: GroupId) -> Ipv4Addr {
        let place = group.0 % u32::from(self.count.max(1));
        Ipv4Addr::from(u32::from(self.first).wrapping_add(place))
    }

    /// Whether all addresses are for multicast and not reserved for routing on the local link.
    pub fn is_valid(&self) -> bool {
        let first = u32::from(self.first);
        let Some(last) = first.checked_add(u32::from(self.count).saturating_sub(1)) else {
            return false;
        };
        self.count > 0 && is_usable(first) && is_usable(last) && is_usable(self.hello.into())
    }
}

impl Default for MulticastPool {
    /// `239.77.0.1+1024/239.77.255.1`, of the block for use within an organisation (RFC 2365).
    fn default() -> Self {
        Self { first: Ipv4Addr::new(239, 77, 0, 1), count: 1024, hello: DEFAULT_HELLO }
    }
}

impl fmt::Display for MulticastPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}/{}", self.first, self.count, self.hello)
    }
}

/// Text that is not a pool of multicast addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not FIRST+COUNT with multicast addresses, such as 239.77.0.1+1024")]
pub struct PoolParseError(pub String);

impl FromStr for MulticastPool {
    type Err = PoolParseError;

    fn from_str(text: &str) -> Result<Self, PoolParseError> {
        let parse = || {
            let (pool, hello) = match text.split_once('/') {
                Some((pool, hello)) => (pool, hello.parse().ok()?),
                None => (text, DEFAULT_HELLO),
            };
            let (first, count) = pool.split_once('+')?;
            Some(Self { first: first.parse().ok()?, count: count.parse().ok()?, hello })
        };
        parse().filter(Self::is_valid).ok_or_else(|| PoolParseError(text.into()))
    }
}

fn is_usable(address: u32) -> bool {
    (FIRST_USABLE..=LAST_USABLE).contains(&address)
}

const DEFAULT_HELLO: Ipv4Addr = Ipv4Addr::new(239, 77, 255, 1);
/// 224.0.0.x is for protocols of the local link and flooded by every switch.
const FIRST_USABLE: u32 = 0xE000_0100;
const LAST_USABLE: u32 = 0xEFFF_FFFF;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_reads_what_it_writes() {
        let pool = MulticastPool { count: 7, ..MulticastPool::default() };
        assert_eq!(pool.to_string().parse(), Ok(pool));
        assert_eq!("239.77.0.1+1024".parse(), Ok(MulticastPool::default()));
    }

    #[test]
    fn addresses_that_are_not_for_multicast_are_refused() {
        for text in
            ["10.0.0.1+5", "239.77.0.1+0", "239.255.255.255+2", "224.0.0.1+1", "239.77.0.1", ""]
        {
            assert!(text.parse::<MulticastPool>().is_err(), "{text}");
        }
    }

    #[test]
    fn every_group_has_an_address_of_the_pool() {
        let pool = MulticastPool::default();
        assert_eq!(pool.address(GroupId(0)), pool.first);
        assert_eq!(pool.address(GroupId(1023)), Ipv4Addr::new(239, 77, 4, 0));
        assert_eq!(pool.address(GroupId(1024)), pool.first);
    }
}

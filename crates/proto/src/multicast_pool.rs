use core::fmt;
use core::net::Ipv4Addr;
use core::str::FromStr;

use crate::GroupId;

/// A range of multicast addresses for groups, which must be the same on all nodes.
///
/// Kernels, network cards and switches support few addresses, so groups share the addresses of a
/// pool.
///
/// The text form is `FIRST+COUNT` or `FIRST+COUNT/HELLO`, such as `239.77.0.1+1024/239.77.255.1`. A
/// network from /17 to /32, such as `239.200.0.0/24`, is also accepted, and stands for all its
/// addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MulticastPool {
    /// First address of the range.
    pub first: Ipv4Addr,
    /// Number of addresses, at least 1.
    pub count: u16,
    /// Multicast address of hellos, outside the pool.
    pub hello: Ipv4Addr,
}

impl MulticastPool {
    /// Returns the multicast address of `group`. Its index in the pool is the group's id, which is
    /// a hash, modulo the size of the pool.
    pub fn address(&self, group: GroupId) -> Ipv4Addr {
        let place = group.0 % u32::from(self.count.max(1));
        Ipv4Addr::from(u32::from(self.first).wrapping_add(place))
    }

    fn of_network(address: Ipv4Addr, prefix: u8) -> Option<Self> {
        let count = u16::try_from(1_u32.checked_shl(32_u8.checked_sub(prefix)?.into())?).ok()?;
        let is_first = u32::from(address).is_multiple_of(count.into());
        is_first.then_some(Self { first: address, count, hello: DEFAULT_HELLO })
    }

    /// Returns `true` if the pool is not empty, and its addresses and the hello address are
    /// multicast addresses outside the link-local block 224.0.0.0/24.
    pub fn is_valid(&self) -> bool {
        let first = u32::from(self.first);
        let Some(last) = first.checked_add(u32::from(self.count).saturating_sub(1)) else {
            return false;
        };
        self.count > 0 && is_usable(first) && is_usable(last) && is_usable(self.hello.into())
    }
}

impl Default for MulticastPool {
    /// Returns a pool in the administratively scoped range (RFC 2365).
    fn default() -> Self {
        Self { first: Ipv4Addr::new(239, 77, 0, 1), count: 1024, hello: DEFAULT_HELLO }
    }
}

impl fmt::Display for MulticastPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}/{}", self.first, self.count, self.hello)
    }
}

/// The error returned when a text is not a pool of multicast addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "multicast pool {0:?} is invalid: expected FIRST+COUNT with multicast addresses, such as \
     239.77.0.1+1024, or a network from /17 to /32, such as 239.200.0.0/24"
)]
pub struct PoolParseError(pub String);

impl PoolParseError {
    /// Returns a one-line suggestion for how to fix the error.
    pub fn fix(&self) -> String {
        "use 239.77.0.1+1024, or another pool inside 239.0.0.0/8".into()
    }
}

impl FromStr for MulticastPool {
    type Err = PoolParseError;

    fn from_str(text: &str) -> Result<Self, PoolParseError> {
        let parse = || {
            let (pool, rest) = match text.split_once('/') {
                Some((pool, rest)) => (pool, Some(rest)),
                None => (text, None),
            };
            let Some((first, count)) = pool.split_once('+') else {
                return Self::of_network(pool.parse().ok()?, rest?.parse().ok()?);
            };
            let hello = rest.map_or(Ok(DEFAULT_HELLO), str::parse).ok()?;
            Some(Self { first: first.parse().ok()?, count: count.parse().ok()?, hello })
        };
        parse().filter(Self::is_valid).ok_or_else(|| PoolParseError(text.into()))
    }
}

fn is_usable(address: u32) -> bool {
    (FIRST_USABLE..=LAST_USABLE).contains(&address)
}

const DEFAULT_HELLO: Ipv4Addr = Ipv4Addr::new(239, 77, 255, 1);
/// First usable multicast address. Those in 224.0.0.x are for protocols of the local link, and
/// every switch floods them.
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
    fn a_network_is_the_pool_of_its_addresses() {
        let pool = |text: &str| text.parse::<MulticastPool>().map(|it| (it.first, it.count)).ok();
        let first = Ipv4Addr::new(239, 200, 0, 0);
        assert_eq!(pool("239.200.0.0/24"), Some((first, 256)));
        assert_eq!(pool("239.200.0.0/17"), Some((first, 32_768)));
        assert_eq!(pool("239.200.0.0/32"), Some((first, 1)));
        for text in ["239.200.0.0/16", "239.200.0.0/33", "239.200.0.1/24", "10.0.0.0/24", "/24"] {
            assert_eq!(pool(text), None, "{text}");
        }
    }

    #[test]
    fn addresses_that_are_not_for_multicast_are_refused() {
        for text in
            ["10.0.0.1+5", "239.77.0.1+0", "239.255.255.255+2", "224.0.0.1+1", "239.77.0.1", ""]
        {
            let error = text.parse::<MulticastPool>().expect_err(text);
            assert!(error.fix().contains("239.77.0.1+1024"), "{error}");
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

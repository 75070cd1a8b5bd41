//! Lists the network interfaces of the host and chooses one.
//!
//! The list comes from `getifaddrs` of the crate `nix`, which is needed for timers anyway. It
//! contains the flags (up, loopback, multicast) that specialized crates omit.

use std::net::Ipv4Addr;
#[cfg(any(target_os = "linux", target_os = "android"))]
use std::net::SocketAddr;

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
#[cfg(any(target_os = "linux", target_os = "android"))]
use socket2::{Domain, Protocol, Socket, Type};

use crate::shared::error::StartError;

/// A network interface and one of its IPv4 addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Name of the interface, such as `eth0`.
    pub name: String,
    /// IPv4 address of the interface.
    pub address: Ipv4Addr,
    /// `true` if the interface is up.
    pub is_up: bool,
    /// `true` if the interface is a loopback interface, which leads only to this host.
    pub is_loopback: bool,
    /// `true` if the interface has the multicast flag. Loopback often carries multicast without
    /// this flag.
    pub is_multicast: bool,
}

impl Interface {
    /// Returns all interfaces, once for each of their IPv4 addresses, in the order in which the
    /// operating system lists them.
    ///
    /// # Errors
    /// Returns an error if the operating system cannot list the interfaces.
    pub fn list() -> Result<Vec<Self>, StartError> {
        let addresses = getifaddrs()
            .map_err(|errno| StartError::system("list the network interfaces", errno.into()))?;
        Ok(addresses
            .filter_map(|entry| {
                let address = entry.address?.as_sockaddr_in()?.ip();
                Some(Self {
                    name: entry.interface_name,
                    address,
                    is_up: entry.flags.contains(InterfaceFlags::IFF_UP),
                    is_loopback: entry.flags.contains(InterfaceFlags::IFF_LOOPBACK),
                    is_multicast: entry.flags.contains(InterfaceFlags::IFF_MULTICAST),
                })
            })
            .collect())
    }
}

impl Interface {
    /// Returns the maximum size, in bytes, of an IP packet on the interface, if it is known.
    ///
    /// Files under `/sys` may belong to another network namespace, so a socket is queried.
    pub fn mtu(&self) -> Option<u16> {
        mtu_at(self.address)
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn mtu_at(address: Ipv4Addr) -> Option<u16> {
    use nix::sys::socket::{getsockopt, sockopt};
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).ok()?;
    socket.set_multicast_if_v4(&address).ok()?;
    // The address of all hosts on a link needs no route.
    socket.connect(&SocketAddr::from((Ipv4Addr::new(224, 0, 0, 1), ANY_PORT)).into()).ok()?;
    let mtu = getsockopt(&socket, sockopt::IpMtu).ok()?;
    u16::try_from(mtu.clamp(0, u16::MAX.into())).ok().filter(|mtu| *mtu > 0)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) fn mtu_at(_address: Ipv4Addr) -> Option<u16> {
    None
}

#[cfg(any(target_os = "linux", target_os = "android"))]
const ANY_PORT: u16 = 9;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InterfaceChoice {
    pub(crate) interface: Interface,
    pub(crate) reason: String,
}

impl InterfaceChoice {
    /// Chooses the interface with the name or address `wanted`. Without `wanted`, chooses the first
    /// multicast interface to other hosts, or else loopback.
    pub(crate) fn new(wanted: Option<&str>, all: Vec<Interface>) -> Result<Self, StartError> {
        match wanted {
            Some(wanted) => Self::named(wanted, all),
            None => Self::first(all),
        }
    }

    fn named(wanted: &str, all: Vec<Interface>) -> Result<Self, StartError> {
        let address: Option<Ipv4Addr> = wanted.parse().ok();
        let matches = |it: &&Interface| it.name == wanted || Some(it.address) == address;
        match all.iter().find(matches) {
            Some(found) => Ok(Self { interface: found.clone(), reason: REQUESTED.into() }),
            None => Err(StartError::UnknownInterface {
                name: wanted.into(),
                known: all.iter().map(|it| format!("{} ({})", it.name, it.address)).collect(),
            }),
        }
    }

    fn first(all: Vec<Interface>) -> Result<Self, StartError> {
        let fits = |it: &&Interface| it.is_up && it.is_multicast && !it.is_loopback;
        let loopback = |it: &&Interface| it.is_up && it.is_loopback;
        let others = all.iter().filter(fits).count();
        if let Some(found) = all.iter().find(fits) {
            let reason = match others {
                1 => "the only interface that is up and supports multicast".into(),
                _ => format!("the first of {others} interfaces that are up and support multicast"),
            };
            return Ok(Self { interface: found.clone(), reason });
        }
        let found = all.iter().find(loopback).ok_or(StartError::NoInterface)?;
        let reason =
            "no other interface is up and supports multicast: only this host is reachable".into();
        Ok(Self { interface: found.clone(), reason })
    }
}

pub(crate) const REQUESTED: &str = "requested";

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(name: &str, last: u8, is_loopback: bool, is_multicast: bool) -> Interface {
        let address = Ipv4Addr::new(10, 0, 0, last);
        Interface { name: name.into(), address, is_up: true, is_loopback, is_multicast }
    }

    #[test]
    fn first_interface_to_other_hosts_is_chosen_with_the_reason() {
        let lo = interface("lo", 1, true, false);
        let (a, b) = (interface("a", 2, false, true), interface("b", 3, false, true));
        let tunnel = interface("tun", 4, false, false);
        let choose = |all: &[&Interface]| {
            InterfaceChoice::new(None, all.iter().map(|it| (*it).clone()).collect())
                .expect("a choice")
        };
        let choice = choose(&[&lo, &tunnel, &a, &b]);
        assert_eq!((choice.interface.name.as_str(), choice.reason.contains('2')), ("a", true));
        assert_eq!(choose(&[&lo, &tunnel]).interface, lo);
        assert!(matches!(
            InterfaceChoice::new(None, vec![a].split_off(1)),
            Err(StartError::NoInterface)
        ));
    }

    #[test]
    fn an_unknown_one_is_an_error_that_lists_the_known() {
        let all = vec![interface("lo", 1, true, false)];
        assert_eq!(
            InterfaceChoice::new(Some("10.0.0.1"), all.clone()).expect("by IP").interface,
            all[0]
        );
        let error = InterfaceChoice::new(Some("eth9"), all).expect_err("there is none");
        assert_eq!(error.to_string(), "unknown interface 'eth9'");
        assert_eq!(error.fix(), "use one of: lo (10.0.0.1)");
    }

    #[test]
    fn this_host_has_loopback() {
        let all = Interface::list().expect("a list");
        let loopback = all.iter().find(|it| it.address == Ipv4Addr::LOCALHOST);
        let loopback = loopback.expect("an interface");
        assert!(loopback.is_loopback && loopback.is_up);
        if cfg!(target_os = "linux") {
            assert!(loopback.mtu().is_some_and(|mtu| mtu >= 1500), "{:?}", loopback.mtu());
        }
    }
}

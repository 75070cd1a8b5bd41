use std::collections::HashMap;
use std::io;
use std::net::Ipv4Addr;

use socket2::{Domain, Protocol, Socket as RawSocket, Type};

/// The multicast memberships, held on separate unbound sockets. By default, a socket can hold 20 of
/// them, and memberships on a receiving socket cost time per packet.
#[derive(Debug)]
pub(crate) struct MulticastJoins {
    interface: Ipv4Addr,
    sockets: Vec<Holder>,
    joined: HashMap<Ipv4Addr, Membership>,
    failures: u64,
}

#[derive(Debug)]
struct Holder {
    socket: RawSocket,
    memberships: usize,
}

#[derive(Debug)]
struct Membership {
    holder: usize,
    users: usize,
}

impl MulticastJoins {
    pub(crate) fn new(interface: Ipv4Addr) -> Self {
        Self { interface, sockets: Vec::new(), joined: HashMap::new(), failures: 0 }
    }

    pub(crate) fn join(&mut self, address: Ipv4Addr) -> io::Result<()> {
        if let Some(membership) = self.joined.get_mut(&address) {
            membership.users += 1;
            return Ok(());
        }
        match self.hold(address) {
            Ok(holder) => {
                self.joined.insert(address, Membership { holder, users: 1 });
                Ok(())
            }
            Err(error) => {
                self.failures += 1;
                Err(error)
            }
        }
    }

    pub(crate) fn leave(&mut self, address: Ipv4Addr) {
        let Some(membership) = self.joined.get_mut(&address) else { return };
        membership.users -= 1;
        if membership.users > 0 {
            return;
        }
        let holder = &mut self.sockets[membership.holder];
        self.joined.remove(&address);
        if let Err(error) = holder.socket.leave_multicast_v4(&address, &self.interface) {
            tracing::debug!("cannot leave {address}: {error}");
        }
        holder.memberships -= 1;
    }

    pub(crate) fn move_to(&mut self, interface: Ipv4Addr) -> io::Result<()> {
        self.interface = interface;
        let mut result = Ok(());
        for (address, membership) in &self.joined {
            let socket = &self.sockets[membership.holder].socket;
            // When the interface loses its last address, the kernel drops the membership, but the
            // socket still lists it.
            let _ = socket.leave_multicast_v4(address, &interface);
            if let Err(error) = socket.join_multicast_v4(address, &interface) {
                self.failures += 1;
                result = result.and(Err(error));
            }
        }
        result
    }

    pub(crate) fn sockets(&self) -> u64 {
        self.sockets.iter().filter(|holder| holder.memberships > 0).count() as u64
    }

    pub(crate) fn failures(&self) -> u64 {
        self.failures
    }

    /// Joins on a socket with room, or on a new one. A system may allow fewer memberships than
    /// usual.
    fn hold(&mut self, address: Ipv4Addr) -> io::Result<usize> {
        for place in 0..self.sockets.len() {
            let holder = &mut self.sockets[place];
            if holder.memberships >= MEMBERSHIPS_PER_SOCKET {
                continue;
            }
            match holder.socket.join_multicast_v4(&address, &self.interface) {
                Ok(()) => {
                    holder.memberships += 1;
                    return Ok(place);
                }
                Err(error) if is_exhausted(&error) => {}
                Err(error) => return Err(error),
            }
        }
        let socket = RawSocket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
        socket.join_multicast_v4(&address, &self.interface)?;
        self.sockets.push(Holder { socket, memberships: 1 });
        Ok(self.sockets.len() - 1)
    }
}

fn is_exhausted(error: &io::Error) -> bool {
    error.raw_os_error() == Some(nix::errno::Errno::ENOBUFS as i32)
}

/// Default of `net.ipv4.igmp_max_memberships` on Linux.
const MEMBERSHIPS_PER_SOCKET: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_twenty_addresses_are_spread_over_several_sockets() {
        let mut joins = MulticastJoins::new(Ipv4Addr::LOCALHOST);
        let addresses: Vec<Ipv4Addr> = (1..=50).map(|it| Ipv4Addr::new(239, 78, 0, it)).collect();
        for address in &addresses {
            joins.join(*address).expect("a membership");
        }
        assert_eq!(joins.sockets(), 3);
        for address in &addresses[..20] {
            joins.leave(*address);
        }
        assert_eq!(joins.sockets(), 2);
        joins.join(addresses[0]).expect("the room of a left one");
        assert_eq!((joins.sockets(), joins.failures()), (3, 0));
    }

    #[test]
    fn an_address_is_held_as_long_as_one_group_uses_it() {
        let mut joins = MulticastJoins::new(Ipv4Addr::LOCALHOST);
        let address = Ipv4Addr::new(239, 78, 1, 1);
        joins.join(address).expect("a membership");
        joins.join(address).expect("the same");
        joins.leave(address);
        assert_eq!(joins.sockets(), 1);
        joins.leave(address);
        joins.leave(address);
        assert_eq!(joins.sockets(), 0);
    }

    #[test]
    fn an_address_that_is_not_for_multicast_is_a_counted_failure() {
        let mut joins = MulticastJoins::new(Ipv4Addr::LOCALHOST);
        assert!(joins.join(Ipv4Addr::new(10, 0, 0, 1)).is_err());
        assert_eq!(joins.failures(), 1);
    }
}

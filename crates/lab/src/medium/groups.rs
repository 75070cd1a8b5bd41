use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};

use carom_proto::GroupId;

/// The multicast addresses of a world's groups, in the order in which they are first used.
#[derive(Debug)]
pub(super) struct Addresses {
    second: u8,
    known: BTreeMap<GroupId, Ipv4Addr>,
}

impl Addresses {
    /// Returns addresses that differ from those of most other worlds.
    pub(super) fn of_world(world: u16) -> Self {
        Self { second: FIRST + (world % u16::from(RANGES)) as u8, known: BTreeMap::new() }
    }

    /// Returns the address of a group.
    pub(super) fn of(&mut self, group: GroupId) -> Ipv4Addr {
        let next =
            u16::try_from(self.known.len() + 1).expect("a world has fewer than 65,535 groups");
        let [third, fourth] = next.to_be_bytes();
        let address = Ipv4Addr::new(239, self.second, third, fourth);
        *self.known.entry(group).or_insert(address)
    }

    /// Returns the address of all hosts.
    pub(super) fn of_all(&self) -> Ipv4Addr {
        Ipv4Addr::new(239, self.second, 0, 0)
    }
}

/// The memberships of a host. The socket that receives has none: the kernel would search its list
/// for each datagram.
#[derive(Debug)]
pub(super) struct Memberships {
    interface: Ipv4Addr,
    joined: BTreeMap<Ipv4Addr, usize>,
    sockets: Vec<(UdpSocket, usize)>,
}

impl Memberships {
    pub(super) fn at(interface: Ipv4Addr) -> Self {
        Self { interface, joined: BTreeMap::new(), sockets: Vec::new() }
    }

    /// Joins a group. Returns `false` if the host has joined it before. `open` opens a socket on
    /// the host.
    pub(super) fn join(
        &mut self,
        address: Ipv4Addr,
        open: impl FnOnce() -> io::Result<UdpSocket>,
    ) -> io::Result<bool> {
        if self.joined.contains_key(&address) {
            return Ok(false);
        }
        let with_room = self.sockets.iter().position(|(_, joined)| *joined < GROUPS_PER_SOCKET);
        let which = match with_room {
            Some(which) => which,
            None => {
                self.sockets.push((open()?, 0));
                self.sockets.len() - 1
            }
        };
        let (socket, joined) = &mut self.sockets[which];
        socket.join_multicast_v4(&address, &self.interface)?;
        *joined += 1;
        self.joined.insert(address, which);
        Ok(true)
    }

    pub(super) fn leave(&mut self, address: Ipv4Addr) -> io::Result<()> {
        let Some(which) = self.joined.remove(&address) else { return Ok(()) };
        let (socket, joined) = &mut self.sockets[which];
        *joined -= 1;
        socket.leave_multicast_v4(&address, &self.interface)
    }
}

/// The second numbers of addresses are `FIRST` to `FIRST + RANGES - 1`.
const FIRST: u8 = 64;
const RANGES: u8 = 128;
/// The kernel allows about 2700 with its default `optmem_max`.
const GROUPS_PER_SOCKET: usize = 2000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_distinct_addresses_that_stay() {
        let mut addresses = Addresses::of_world(3);
        let of = |addresses: &mut Addresses| [1, 2, 1].map(|id| addresses.of(GroupId(id)));
        let [one, two, again] = of(&mut addresses);
        assert_eq!(one, again);
        assert_ne!(one, two);
        assert!(one != addresses.of_all() && one.is_multicast());
        assert_ne!(Addresses::of_world(4).of(GroupId(1)), one);
        for id in 0..1000 {
            addresses.of(GroupId(id));
        }
        assert_eq!(addresses.of(GroupId(999)), Ipv4Addr::new(239, 67, 3, 232));
    }

    #[test]
    fn group_that_was_joined_is_not_joined_again() {
        let mut memberships = Memberships::at(Ipv4Addr::LOCALHOST);
        let address = Ipv4Addr::new(239, 64, 0, 1);
        let open = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0));
        let join = |memberships: &mut Memberships| memberships.join(address, open).ok();
        assert_eq!(join(&mut memberships), Some(true));
        assert_eq!(join(&mut memberships), Some(false));
        memberships.leave(address).expect("the group was joined");
        assert_eq!(join(&mut memberships), Some(true));
    }
}

use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use carom_netns::{Host, Lab};
use carom_proto::{Class, GroupId};
use carom_sim::{Arrival, Goal, HostIx, Medium};
use nix::sys::socket::{setsockopt, sockopt};
use rustix::event::{Timespec, epoll};

use super::account::Account;
use super::groups::{Addresses, Memberships};
use super::sender::Sender;

/// The sockets of one world: one for each host, and more for its memberships.
///
/// The first byte of each datagram has its class, and whether it is a multicast.
pub(super) struct Sockets {
    lab: Arc<Lab>,
    hosts: Vec<HostSockets>,
    by_address: HashMap<Ipv4Addr, HostIx>,
    addresses: Addresses,
    port: u16,
    epoll: Option<OwnedFd>,
    /// Hosts whose sockets are readable, each with the number of datagrams to read before others.
    ready: VecDeque<(usize, u32)>,
    events: Vec<epoll::Event>,
    /// Time at which the world would have started, had it never stood still. `None` until the
    /// first call to [`Medium::receive`].
    started: Option<Instant>,
    /// `true` if the bridges may not know a membership yet. Datagrams wait meanwhile.
    is_settling: bool,
    received: Box<[u8]>,
    /// `None` only while the sockets are dropped.
    sender: Option<Sender>,
    account: Arc<Account>,
}

struct HostSockets {
    address: Ipv4Addr,
    socket: Option<Arc<UdpSocket>>,
    memberships: Memberships,
}

impl Sockets {
    /// Opens the sockets on the first `count` hosts. An error is noted in the account.
    ///
    /// # Panics
    /// Panics if the lab has fewer hosts.
    pub(super) fn open(lab: &Arc<Lab>, count: usize, world: u16, account: Arc<Account>) -> Self {
        let port = FIRST_PORT + world;
        let has = lab.hosts().len();
        assert!(count <= has, "the world has {count} hosts, and the lab only {has}");
        let hosts = lab.hosts().iter().take(count).map(|host| {
            let socket = note(&account, "cannot open a socket", open(host, port)).map(Arc::new);
            let address = host.address();
            HostSockets { address, socket, memberships: Memberships::at(address) }
        });
        let hosts: Vec<HostSockets> = hosts.collect();
        let by_address = hosts.iter().zip(0..).map(|(host, ix)| (host.address, HostIx(ix)));
        let sending = hosts.iter().map(|host| host.socket.clone()).collect();
        let mut sockets = Self {
            lab: Arc::clone(lab),
            by_address: by_address.collect(),
            hosts,
            addresses: Addresses::of_world(world),
            port,
            epoll: None,
            ready: VecDeque::new(),
            events: Vec::with_capacity(EVENTS),
            started: None,
            is_settling: true,
            received: vec![0; MOST_BYTES].into(),
            sender: Some(Sender::start(sending, Arc::clone(&account))),
            account,
        };
        let epoll = sockets.watch();
        sockets.epoll = note(&sockets.account, "cannot watch sockets", epoll);
        let all = sockets.addresses.of_all();
        (0..sockets.hosts.len()).for_each(|host| sockets.join(host, all));
        sockets
    }

    fn watch(&self) -> io::Result<OwnedFd> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (socket, ix) in self.hosts.iter().zip(0..) {
            let Some(socket) = &socket.socket else { continue };
            epoll::add(&epoll, &**socket, epoll::EventData::new_u64(ix), epoll::EventFlags::IN)?;
        }
        Ok(epoll)
    }

    fn join(&mut self, host: usize, address: Ipv4Addr) {
        let namespace = self.lab.hosts()[host].namespace();
        let open =
            || namespace.enter(|| UdpSocket::bind(("0.0.0.0", 0))).map_err(io::Error::other)?;
        let joined = self.hosts[host].memberships.join(address, open);
        self.is_settling |= note(&self.account, "cannot join a group", joined) == Some(true);
    }

    /// Waits until the bridges know all memberships. The time of the world stands still.
    fn settle(&mut self) {
        let now = Instant::now();
        std::thread::sleep(if self.started.is_none() { SETTLING_AT_START } else { SETTLING });
        self.started = Some(self.started.unwrap_or(now) + now.elapsed());
        self.is_settling = false;
    }

    fn flush(&mut self) {
        if let Some(sender) = &mut self.sender {
            sender.flush();
        }
    }

    /// Waits until a socket is readable, and marks all readable sockets.
    fn wait(&mut self, most: Duration) {
        let Some(epoll) = &self.epoll else { return std::thread::sleep(most) };
        let most = Timespec::try_from(most).unwrap_or_default();
        self.events.clear();
        match epoll::wait(epoll, rustix::buffer::spare_capacity(&mut self.events), Some(&most)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => self.account.note_error("cannot wait for sockets", &error),
        }
        for event in &self.events {
            self.ready.push_back((event.data.u64() as usize, TURN));
        }
    }

    /// Reads a datagram into `received`. Returns the receiver, the sender, and the length.
    fn read(&mut self) -> Option<(HostIx, HostIx, usize)> {
        while let Some((host, left)) = self.ready.front_mut() {
            let host = *host;
            let Some(socket) = self.hosts[host].socket.as_ref().filter(|_| *left > 0) else {
                self.ready.pop_front();
                continue;
            };
            *left -= 1;
            match socket.recv_from(&mut self.received) {
                Ok((length, SocketAddr::V4(source))) if length > 0 => {
                    let Some(source) = self.by_address.get(source.ip()) else { continue };
                    return Some((HostIx(host as u32), *source, length));
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.ready.pop_front();
                }
                Err(error) => {
                    self.account.note_error("cannot receive", &error);
                    self.ready.pop_front();
                }
            }
        }
        None
    }

    /// Returns the number of datagrams that did not fit into the buffer of a host's socket.
    fn drops_at(&self, host: usize) -> io::Result<u64> {
        let namespace = self.lab.hosts()[host].namespace();
        let read = || std::fs::read_to_string("/proc/thread-self/net/udp");
        let table = namespace.enter(read).map_err(io::Error::other)??;
        Ok(drops_of(&table, self.port))
    }
}

impl Medium for Sockets {
    fn elapsed(&self) -> Duration {
        self.started.map_or(Duration::ZERO, |started| started.elapsed())
    }

    fn subscribe(&mut self, host: HostIx, group: GroupId) {
        let address = self.addresses.of(group);
        self.join(host.0 as usize, address);
    }

    fn unsubscribe(&mut self, host: HostIx, group: GroupId) {
        let address = self.addresses.of(group);
        let left = self.hosts[host.0 as usize].memberships.leave(address);
        note(&self.account, "cannot leave a group", left);
    }

    fn send(&mut self, from: HostIx, to: Goal, class: Class, datagram: &[u8]) {
        let (address, is_multicast) = match to {
            Goal::Host(host) => (self.hosts[host.0 as usize].address, false),
            Goal::Group(group) => (self.addresses.of(group), true),
            Goal::Everyone => (self.addresses.of_all(), true),
        };
        let from = from.0 as usize;
        if address != self.hosts[from].address {
            let first = class as u8 | u8::from(is_multicast) << MULTICAST_BIT;
            let Some(sender) = &mut self.sender else { return };
            sender.add(from, SocketAddrV4::new(address, self.port), first, datagram);
            if sender.has_full_batch() && self.started.is_some() {
                if self.is_settling {
                    self.settle();
                }
                self.flush();
            }
        }
    }

    fn note_lag(&mut self, lag: Duration) {
        self.account.note_lag(lag);
    }

    fn receive(&mut self, most: Duration) -> Option<Arrival<'_>> {
        if self.is_settling {
            self.settle();
        }
        self.flush();
        if self.ready.is_empty() {
            self.wait(most);
        }
        let (host, source, length) = self.read()?;
        let (first, datagram) = self.received[..length].split_first()?;
        let class = *CLASSES.get(usize::from(first & !(1 << MULTICAST_BIT)))?;
        let is_multicast = first >> MULTICAST_BIT == 1;
        Some(Arrival { host, source, class, is_multicast, datagram })
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        // Its last datagrams may be dropped, too.
        self.sender = None;
        for host in 0..self.hosts.len() {
            let drops = note(&self.account, "cannot read the drops", self.drops_at(host));
            self.account.add_kernel_drops(drops.unwrap_or(0));
        }
    }
}

/// Opens the socket of a host that receives datagrams to its address and to all joined groups.
fn open(host: &Host, port: u16) -> io::Result<UdpSocket> {
    let bind = || UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port));
    let socket = host.enter(bind).map_err(io::Error::other)??;
    socket.set_nonblocking(true)?;
    socket.set_multicast_loop_v4(false)?;
    setsockopt(&socket, sockopt::RcvBufForce, &BUFFER)?;
    setsockopt(&socket, sockopt::SndBufForce, &BUFFER)?;
    Ok(socket)
}

fn note<T>(account: &Account, what: &str, result: io::Result<T>) -> Option<T> {
    result.map_err(|error| account.note_error(what, &error)).ok()
}

/// Returns the drops in the last column of `/proc/net/udp` for the socket with this local port.
fn drops_of(table: &str, port: u16) -> u64 {
    let port = format!(":{port:04X}");
    let row = |line: &str| {
        let mut columns = line.split_whitespace();
        let is_its = columns.nth(1)?.ends_with(&port);
        columns.last()?.parse::<u64>().ok().filter(|_| is_its)
    };
    table.lines().filter_map(row).sum()
}

const FIRST_PORT: u16 = 10_000;
const EVENTS: usize = 256;
/// Number of datagrams that are read from a socket before another has its turn.
const TURN: u32 = 8;
const MOST_BYTES: usize = 65_536;
const MULTICAST_BIT: u8 = 7;
const BUFFER: usize = 8 << 20;
/// Time until the bridges know all memberships, before a world starts.
const SETTLING_AT_START: Duration = Duration::from_secs(3);
/// The same while it runs. The kernel reports a membership some milliseconds after the call.
const SETTLING: Duration = Duration::from_millis(100);
/// In the order of their numbers.
const CLASSES: [Class; 4] = [Class::Data, Class::Repair, Class::Retransmission, Class::Control];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_those_of_the_socket_with_the_port() {
        let row = |address, drops: u32| {
            format!(
                "  1234: {address} 00000000:0000 07 00000000:00000000 00:0 0 0 0 1 2 0 {drops}\n"
            )
        };
        let heading = "  sl  local_address rem_address st tx_queue rx_queue inode drops\n";
        let rows = [row("00000000:2710", 17), row("0101410A:2711", 5)];
        let table = format!("{heading}{}", rows.concat());
        assert_eq!([10_000, 10_001, 10_002].map(|port| drops_of(&table, port)), [17, 5, 0]);
    }

    #[test]
    fn every_class_has_its_number() {
        assert!(CLASSES.iter().zip(0..).all(|(class, number)| *class as u8 == number));
    }
}

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use carom_proto::loss::Loss;
use carom_proto::node::Node;
use carom_proto::wire::{Datagram, Header, Protocol};
use carom_proto::{
    Destination, Endpoint, GroupId, LOOK_AHEAD, NetworkChange, NodeId, Origin, Rng, Time, Transmit,
    Wakeup,
};
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};

use super::address_book::AddressBook;
use super::address_watch::{AddressWatch, Change};
use super::interfaces::Interface;
use super::links::{Links, MAX_LINKS};
use super::multicast_joins::MulticastJoins;
use super::network::Network;
use super::paths::{IP_UDP_BYTES, PathInput, Paths};
use super::receive::{Receiver, RecvBuffer, SocketKind};
use super::routes::{RouteContext, Routes};
use super::send::{Multicast, Run, Sender};
use super::sizes::Sizes;
use super::sockets::Sockets;
use crate::shared::addressing::{MulticastPool, PathChoice};
use crate::shared::error::plain;
use crate::shared::notices::{Notice, NoticeLog};
use crate::shared::status::{MemberPath, Stats};

#[derive(Debug)]
pub(crate) struct UdpNetwork {
    sockets: Sockets,
    receiver: Receiver,
    sender: Sender,
    routes: Routes,
    paths: Paths,
    book: AddressBook,
    joins: MulticastJoins,
    notices: Arc<NoticeLog>,
    interface: String,
    watch: Watch,
    address: AddressWatch,
    /// New endpoint of the node, until the runtime has taken it.
    moved_to: Option<SocketAddr>,
    links: Links,
    sizes: Sizes,
}

pub(crate) struct UdpSettings<'a> {
    pub(crate) origin: Origin,
    pub(crate) interface: &'a Interface,
    pub(crate) path: PathChoice,
    pub(crate) pool: MulticastPool,
    pub(crate) loss: Loss,
    /// Size, in bytes, of the largest packet that an engine wants to send.
    pub(crate) wanted_mtu: u16,
}

#[derive(Debug, Default)]
struct Watch {
    is_readable: [bool; 2],
    is_writable_awaited: bool,
    is_blocked: bool,
    token: usize,
}

const UDP_SOCKETS: usize = 2;
pub(crate) const TOKENS: usize = UDP_SOCKETS + MAX_LINKS;

impl UdpNetwork {
    pub(crate) fn new(
        sockets: Sockets,
        settings: UdpSettings<'_>,
        notices: Arc<NoticeLog>,
        rng: &mut Rng,
    ) -> Self {
        let UdpSettings { origin, interface, path, pool, loss, wanted_mtu } = settings;
        let (address, multicast_port) = (interface.address, sockets.multicast_port());
        let ceiling = Sizes::ceiling(wanted_mtu, address);
        let mut network = Self {
            sockets,
            receiver: Receiver::new(origin.node, loss, rng.next_u64()),
            sender: Sender::new(address),
            routes: Routes::new(path, pool, multicast_port),
            paths: Paths::new(origin, multicast_port.is_some(), ceiling, rng.next_u64()),
            book: AddressBook::new(rng.next_u64()),
            joins: MulticastJoins::new(address),
            notices,
            interface: interface.name.clone(),
            watch: Watch::default(),
            address: AddressWatch::new(&interface.name, address),
            moved_to: None,
            links: Links::default(),
            sizes: Sizes::new(origin, wanted_mtu),
        };
        if multicast_port.is_some() {
            network.listen(pool.hello);
        }
        network
    }

    /// Registers the sockets. `token` is the first of the node's [`TOKENS`] tokens.
    pub(crate) fn attach(&mut self, registry: &Registry, token: usize) -> io::Result<()> {
        self.watch.token = token;
        self.links.attach(token + UDP_SOCKETS);
        let unicast = self.sockets.unicast.raw_fd();
        registry.register(&mut SourceFd(&unicast), Token(token), Interest::READABLE)?;
        if let Some(multicast) = &self.sockets.multicast {
            let fd = multicast.raw_fd();
            registry.register(&mut SourceFd(&fd), Token(token + 1), Interest::READABLE)?;
        }
        Ok(())
    }

    /// Handles readiness of the unicast socket (0), the multicast socket (1), or a link.
    pub(crate) fn on_socket(&mut self, which: usize, is_writable: bool) {
        if let Some(link) = which.checked_sub(UDP_SOCKETS) {
            self.links.on_socket(link);
            return;
        }
        self.watch.is_readable[which] = true;
        if is_writable && which == 0 {
            self.sender.resume(&self.sockets.unicast);
        }
    }

    pub(crate) fn is_readable(&self) -> bool {
        self.watch.is_readable.contains(&true) || self.links.are_ready()
    }

    pub(crate) fn receive(&mut self, buffer: &mut RecvBuffer) {
        let mut has_read = false;
        let unicast = (SocketKind::Unicast, Some(&self.sockets.unicast));
        let multicast = (SocketKind::Multicast, self.sockets.multicast.as_ref());
        for (from, socket) in [unicast, multicast] {
            let is_readable = &mut self.watch.is_readable[from as usize];
            let Some(socket) = socket else { continue };
            // The multicast socket is read after every unicast read, even if the poll has not
            // reported it, because a packet that still waits there must not count as missing.
            let follows = from == SocketKind::Multicast && has_read;
            if !(follows || *is_readable) {
                continue;
            }
            has_read = true;
            match self.receiver.drain(from, socket, buffer) {
                Ok(has_more) => *is_readable = has_more,
                Err(error) => {
                    *is_readable = false;
                    let text = format!("cannot read from a UDP socket: {}", plain(&error));
                    self.notices.add(Notice::plain(text));
                }
            }
        }
    }

    pub(crate) fn handle_datagrams(&mut self, now: Time, node: &mut Node) {
        let (fragments, book) = (&mut self.sizes.fragments, &mut self.book);
        while !self.receiver.is_empty() {
            self.receiver.announce(node);
            for _ in 0..LOOK_AHEAD {
                let Some((source, datagram)) = self.receiver.pop() else { break };
                let Header { protocol, sender, .. } = *datagram.header();
                let joined;
                let whole = match protocol {
                    Protocol::Path if node.is_elsewhere(now, sender, source) => {
                        self.paths.counters.path_elsewhere += 1;
                        continue;
                    }
                    Protocol::Path => match self.paths.handle_datagram(now, source, &datagram) {
                        None => continue,
                        Some(PathInput::Answer(by, sequence)) => {
                            book.strangers.on_answer(by, source.0, sequence);
                            continue;
                        }
                        Some(PathInput::Part(by, part)) => {
                            match fragments.take(now, source, by, &part) {
                                Some(whole) => {
                                    joined = whole;
                                    match Datagram::parse(&joined) {
                                        Ok(it) if it.header().protocol != Protocol::Path => it,
                                        _ => continue,
                                    }
                                }
                                None => continue,
                            }
                        }
                    },
                    _ => datagram,
                };
                if let Some(sender) = node.handle_datagram(now, source, &whole)
                    && let Some(nonce) = book.on_datagram(now, sender, source, whole.bytes().len())
                {
                    self.paths.probe(source, nonce);
                }
            }
        }
    }

    fn report_blocked(&mut self, now: Time, node: &mut Node) {
        let is_blocked = self.sender.is_blocked();
        if std::mem::replace(&mut self.watch.is_blocked, is_blocked) != is_blocked {
            node.handle_network(now, &NetworkChange::Blocked(is_blocked));
        }
    }

    /// Joins a multicast address. If this fails, the node notifies the other nodes, which then send
    /// it unicast copies.
    fn listen(&mut self, address: Ipv4Addr) {
        if let Err(error) = self.joins.join(address) {
            self.paths.stop_receiving();
            let interface = &self.interface;
            self.notices.add(Notice {
                text: format!(
                    "cannot join {address} on {interface}: {}; falling back to unicast",
                    plain(&error)
                ),
                fix: Some(format!("ip link set {interface} up multicast on")),
                is_routine: false,
            });
        }
    }

    pub(crate) fn receive_links(&mut self, now: Time, registry: &Registry, node: &mut Node) {
        self.links.receive(now, registry, node);
    }

    pub(crate) fn carry_links(&mut self, now: Time, registry: &Registry, node: &mut Node) {
        self.links.carry(now, registry, node);
    }

    /// Waits for the unicast socket to become writable only while datagrams are queued for it,
    /// because it is almost always writable.
    pub(crate) fn await_room_to_send(&mut self, registry: &Registry) {
        let is_blocked = self.sender.is_blocked();
        if is_blocked == self.watch.is_writable_awaited {
            return;
        }
        let write = is_blocked.then_some(Interest::WRITABLE);
        let interest = write.map_or(Interest::READABLE, |write| Interest::READABLE | write);
        let fd = self.sockets.unicast.raw_fd();
        match registry.reregister(&mut SourceFd(&fd), Token(self.watch.token), interest) {
            Ok(()) => self.watch.is_writable_awaited = is_blocked,
            Err(error) => tracing::warn!("cannot wait for room to send: {error}"),
        }
    }

    pub(crate) fn flush(&mut self) {
        self.sender.resume(&self.sockets.unicast);
    }

    fn on_address(&mut self, change: Change) {
        let interface = self.interface.clone();
        let (text, fix) = match change {
            Change::Missing(address) => (
                format!("{interface} has lost its address {address}: no other node is reachable"),
                Some(format!("ip addr add {address}/PREFIX dev {interface}")),
            ),
            Change::Back(address) => {
                (format!("{interface} has its address {address} again"), self.move_to(address))
            }
            Change::Moved { from, to } => (
                format!("the address of {interface} has changed from {from} to {to}"),
                self.move_to(to),
            ),
        };
        self.notices.add(Notice { text, fix, is_routine: false });
    }

    /// Uses this address of the interface for sending and receiving. Returns the fix if this fails.
    fn move_to(&mut self, address: Ipv4Addr) -> Option<String> {
        self.sender.source = address;
        self.moved_to = Some(SocketAddr::new(address.into(), self.sockets.endpoint.port()));
        let moved = self.sockets.move_to(address).and_then(|()| self.joins.move_to(address));
        self.routes.forget();
        let interface = &self.interface;
        moved
            .err()
            .map(|_| format!("ip link set {interface} up multicast on, and restart this node"))
    }

    fn next_datagram(&mut self, node: &mut Node) -> Option<Transmit> {
        let out = self.sender.buffer();
        node.poll_transmit(out).or_else(|| self.paths.poll_transmit(out))
    }

    fn send(&mut self, now: Time, node: &Node, run: &Run) {
        if let Destination::Node(to) = run.destination
            && !self.book.strangers.may_send(to, run.datagrams, run.bytes)
        {
            drop(self.sender.take(run));
            return;
        }
        let mtu = match run.destination {
            Destination::Node(node) => self.paths.mtu.to(node),
            _ => self.paths.mtu.least(),
        };
        let most = usize::from(mtu - IP_UDP_BYTES);
        let context = RouteContext { node, paths: &self.paths, book: &self.book };
        let route = self.routes.of(&run.destination, &context);
        let (socket, sender) = (&self.sockets.unicast, &mut self.sender);
        let sent = match run.segment_bytes <= most {
            true => sender.send(socket, run, route),
            false => {
                let bytes = sender.take(run);
                let mut multicast = Multicast::Fine;
                for datagram in bytes.chunks(run.segment_bytes) {
                    multicast = self.sizes.send(socket, sender, (run, most), datagram, route);
                }
                multicast
            }
        };
        if sender.has_met_limit() {
            self.check_interface(now);
        }
        if sent == Multicast::Unreachable {
            self.paths.multicast_failed();
            self.routes.forget();
            let interface = &self.interface;
            self.notices.add(Notice {
                text: format!("multicast is unreachable on {interface}: falling back to unicast"),
                fix: Some(format!(
                    "allow it in the firewall, or: ip route add 224.0.0.0/4 dev {interface}"
                )),
                is_routine: false,
            });
        }
    }

    fn check_interface(&mut self, now: Time) {
        let ceiling = self.sizes.check(now, self.sender.source);
        let Some(ceiling) = ceiling.filter(|it| *it != self.paths.mtu.ceiling()) else { return };
        self.paths.mtu.set_ceiling(now, ceiling);
        self.sockets.unicast.renew();
        let interface = &self.interface;
        let text =
            format!("the MTU of {interface} has changed: packets are up to {ceiling} bytes long");
        self.notice(Notice::plain(text));
    }

    fn report_narrow_paths(&mut self) {
        while let Some((node, mtu)) = self.paths.mtu.pop_news() {
            let at = self.book.address(node).map_or_else(String::new, |at| format!(" at {at}"));
            let ceiling = self.paths.mtu.ceiling();
            self.notice(Notice {
                text: format!(
                    "the path MTU to {node}{at} is {mtu} bytes, not {ceiling}: packets are now \
                     limited to this size"
                ),
                fix: Some("raise the MTU of the links on the path, including tunnels".into()),
                is_routine: false,
            });
        }
    }

    fn notice(&mut self, notice: Notice) {
        if self.sizes.may_report() {
            self.notices.add(notice);
        }
    }
}

impl Network for UdpNetwork {
    fn listen_to(&mut self, group: GroupId) -> Option<Ipv4Addr> {
        let address = self.routes.group_address(group).and_then(|address| match address {
            SocketAddr::V4(address) => Some(*address.ip()),
            SocketAddr::V6(_) => None,
        })?;
        self.listen(address);
        Some(address)
    }

    fn stop_listening(&mut self, _group: GroupId, address: Option<Ipv4Addr>) {
        if let Some(address) = address {
            self.joins.leave(address);
        }
    }

    fn meet(&mut self, now: Time, node: NodeId, endpoint: Endpoint) -> bool {
        self.routes.forget();
        let is_usable = self.book.enter(node, endpoint);
        if is_usable {
            self.paths.meet(now, node);
        }
        is_usable
    }

    fn part(&mut self, node: NodeId) {
        self.book.remove(node);
        self.paths.part(node);
        self.routes.forget();
    }

    fn forget_views(&mut self) {
        self.routes.forget();
    }

    fn path(&self, node: NodeId) -> MemberPath {
        self.paths.path(node)
    }

    fn are_paths_known(&self) -> bool {
        self.paths.are_known()
    }

    fn path_mtu(&self) -> u16 {
        self.paths.mtu.least()
    }

    fn path_mtu_to(&self, node: NodeId) -> Option<u16> {
        self.paths.mtu.confirmed(node)
    }

    fn group_endpoint(&self, address: Ipv4Addr) -> Option<SocketAddr> {
        Some(SocketAddr::new(IpAddr::V4(address), self.sockets.multicast_port()?))
    }

    fn handle_timeout(&mut self, now: Time) {
        self.paths.handle_timeout(now);
        self.report_narrow_paths();
        if self.sizes.is_check_due(now) {
            self.check_interface(now);
        }
        if let Some(change) = self.address.check(now) {
            self.on_address(change);
        }
    }

    fn poll_timeout(&self) -> Option<Wakeup> {
        let check = self.address.due().map(|at| Wakeup { at, reason: "check the addresses" });
        Wakeup::earlier(self.paths.poll_timeout(), check)
    }

    fn take_move(&mut self) -> Option<SocketAddr> {
        self.moved_to.take()
    }

    fn transmit(&mut self, now: Time, node: &mut Node) {
        if self.paths.take_change() {
            self.routes.forget();
            let unreached = self.routes.unreached(&self.paths);
            node.handle_network(now, &NetworkChange::Unreached(unreached));
        }
        self.report_blocked(now, node);
        let max_datagrams = self.sockets.unicast.state().max_gso_segments();
        while let Some(Transmit { destination, .. }) = self.next_datagram(node) {
            if let Some(run) = self.sender.add(destination, max_datagrams) {
                self.send(now, node, &run);
                self.report_blocked(now, node);
            }
        }
        if let Some(run) = self.sender.finish() {
            self.send(now, node, &run);
        }
        self.report_blocked(now, node);
    }

    fn count(&self, stats: &mut Stats) {
        let net = &mut stats.net;
        *net += self.receiver.counters;
        *net += self.sender.counters;
        *net += self.sizes.counters;
        *net += self.sizes.fragments.counters;
        *net += self.paths.counters;
        *net += self.links.counters;
        net.losses_injected = self.receiver.losses_injected();
        net.inbox_dropped = self.receiver.inbox_dropped();
        net.path_mtu_probes = self.paths.mtu.probes_sent;
        net.kernel_dropped = self.sockets.kernel_dropped();
        net.strangers_withheld = self.book.strangers.withheld;
        net.join_failures = self.joins.failures();
        net.joiner_sockets = self.joins.sockets();
        stats.node.datagrams_unknown += self.receiver.unknown;
    }
}

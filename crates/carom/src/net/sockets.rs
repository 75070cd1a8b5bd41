use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};

use quinn_udp::{UdpSockRef, UdpSocketState};
use socket2::{Domain, Protocol, SockRef, Socket as RawSocket, Type};

use crate::shared::addressing::DEFAULT_PORT;
use crate::shared::error::StartError;
use crate::shared::notices::Notice;
use crate::shared::status::Buffers;

#[derive(Debug)]
pub(crate) struct Socket {
    io: UdpSocket,
    state: UdpSocketState,
}

impl Socket {
    fn new(raw: RawSocket) -> io::Result<Self> {
        let io: UdpSocket = raw.into();
        let state = UdpSocketState::new(UdpSockRef::from(&io))?;
        Ok(Self { io, state })
    }

    pub(crate) fn io(&self) -> UdpSockRef<'_> {
        UdpSockRef::from(&self.io)
    }

    pub(crate) fn state(&self) -> &UdpSocketState {
        &self.state
    }

    /// Enables segmentation again, which was disabled if the kernel reported a packet that is too
    /// large with the same error as unsupported segmentation.
    pub(crate) fn renew(&mut self) {
        if let Ok(state) = UdpSocketState::new(UdpSockRef::from(&self.io)) {
            self.state = state;
        }
    }

    pub(crate) fn raw_fd(&self) -> RawFd {
        self.io.as_raw_fd()
    }

    pub(crate) fn port(&self) -> io::Result<u16> {
        Ok(self.io.local_addr()?.port())
    }

    pub(crate) fn kernel_dropped(&self) -> u64 {
        drops_of(self.raw_fd()).unwrap_or(0)
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Bindings {
    pub(crate) interface: Ipv4Addr,
    /// Unicast port, or `None` for the default port or, if that is in use, a free port.
    pub(crate) port: Option<u16>,
    pub(crate) multicast_port: Option<u16>,
}

#[derive(Debug)]
pub(crate) struct Sockets {
    pub(crate) unicast: Socket,
    /// The multicast socket. It holds no memberships, because each costs a lookup per packet; see
    /// `multicast_joins`.
    pub(crate) multicast: Option<Socket>,
    pub(crate) endpoint: SocketAddr,
    pub(crate) buffers: Buffers,
}

impl Sockets {
    pub(crate) fn open(bindings: Bindings) -> Result<Self, StartError> {
        let mut buffers = Buffers::default();
        let raw = open_unicast(bindings.port)?;
        let unicast = set_up(raw, &mut buffers, |raw| {
            raw.set_multicast_if_v4(&bindings.interface)?;
            raw.set_multicast_ttl_v4(MULTICAST_TTL)?;
            raw.set_multicast_loop_v4(true)
        })?;
        let multicast = match bindings.multicast_port {
            None => None,
            Some(port) => Some(set_up(bind(port, true)?, &mut buffers, |_| Ok(()))?),
        };
        let port = unicast.port().map_err(|error| StartError::system("read a port", error))?;
        let endpoint = SocketAddr::new(bindings.interface.into(), port);
        Ok(Self { unicast, multicast, endpoint, buffers })
    }

    pub(crate) fn move_to(&mut self, interface: Ipv4Addr) -> io::Result<()> {
        self.endpoint.set_ip(interface.into());
        SockRef::from(&self.unicast.io).set_multicast_if_v4(&interface)
    }

    pub(crate) fn multicast_port(&self) -> Option<u16> {
        self.multicast.as_ref()?.port().ok()
    }

    pub(crate) fn kernel_dropped(&self) -> u64 {
        let multicast = self.multicast.as_ref().map_or(0, Socket::kernel_dropped);
        self.unicast.kernel_dropped() + multicast
    }
}

pub(crate) fn buffer_notices(buffers: &Buffers) -> Vec<Notice> {
    let kinds = [
        ("receive", buffers.receive_asked, buffers.receive_granted, "net.core.rmem_max"),
        ("send", buffers.send_asked, buffers.send_granted, "net.core.wmem_max"),
    ];
    let short = kinds.into_iter().filter(|(_, asked, granted, _)| granted < asked);
    short
        .map(|(kind, asked, granted, sysctl)| {
            let [granted_kib, asked_kib] = [granted / 1024, asked / 1024];
            let text = format!(
                "{kind} buffer: {granted_kib} KiB granted of {asked_kib} KiB requested; bursts may \
                 overflow it"
            );
            Notice::with_fix(text, format!("sysctl -w {sysctl}={asked}"))
        })
        .collect()
}

fn open_unicast(port: Option<u16>) -> Result<RawSocket, StartError> {
    match bind(port.unwrap_or(DEFAULT_PORT), false) {
        Err(StartError::AddressInUse { .. }) if port.is_none() => bind(0, false),
        result => result,
    }
}

fn bind(port: u16, multicast: bool) -> Result<RawSocket, StartError> {
    let raw = RawSocket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))
        .map_err(|error| StartError::system("open a UDP socket", error))?;
    if multicast {
        // All nodes on the host share the port, and each receives a copy of every multicast.
        raw.set_reuse_address(true)
            .map_err(|error| StartError::system("share the multicast port", error))?;
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        raw.set_reuse_port(true)
            .map_err(|error| StartError::system("share the multicast port", error))?;
    }
    let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    raw.bind(&SocketAddr::new(any, port).into()).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => StartError::AddressInUse { port, multicast },
        _ => StartError::system(format!("bind UDP {any}:{port}"), error),
    })?;
    Ok(raw)
}

fn set_up(
    raw: RawSocket,
    buffers: &mut Buffers,
    options: impl FnOnce(&RawSocket) -> io::Result<()>,
) -> Result<Socket, StartError> {
    let failed = |error| StartError::system("set up a UDP socket", error);
    options(&raw).map_err(failed)?;
    let receive = grant_receive(&raw, Buffers::RECEIVE_REQUEST).map_err(failed)?;
    let send = grant_send(&raw, Buffers::SEND_REQUEST).map_err(failed)?;
    *buffers = Buffers {
        receive_asked: Buffers::RECEIVE_REQUEST,
        receive_granted: lesser(buffers.receive_granted, receive),
        send_asked: Buffers::SEND_REQUEST,
        send_granted: lesser(buffers.send_granted, send),
    };
    Socket::new(raw).map_err(failed)
}

fn lesser(so_far: usize, granted: usize) -> usize {
    if so_far == 0 { granted } else { so_far.min(granted) }
}

/// Sets the receive buffer, beyond the system's limit if permitted. Returns the granted size.
fn grant_receive(raw: &RawSocket, bytes: usize) -> io::Result<usize> {
    #[cfg(target_os = "linux")]
    let forced = nix::sys::socket::setsockopt(raw, nix::sys::socket::sockopt::RcvBufForce, &bytes);
    #[cfg(not(target_os = "linux"))]
    let forced: Result<(), ()> = Err(());
    if forced.is_err() {
        // Some systems refuse a size above their limit instead of granting less.
        let _ = raw.set_recv_buffer_size(bytes);
    }
    Ok(raw.recv_buffer_size()? / KERNEL_FACTOR)
}

fn grant_send(raw: &RawSocket, bytes: usize) -> io::Result<usize> {
    #[cfg(target_os = "linux")]
    let forced = nix::sys::socket::setsockopt(raw, nix::sys::socket::sockopt::SndBufForce, &bytes);
    #[cfg(not(target_os = "linux"))]
    let forced: Result<(), ()> = Err(());
    if forced.is_err() {
        let _ = raw.set_send_buffer_size(bytes);
    }
    Ok(raw.send_buffer_size()? / KERNEL_FACTOR)
}

/// Returns the number of drops from the socket's line in the kernel's table, which is found by
/// inode.
fn drops_of(fd: RawFd) -> Option<u64> {
    let link = std::fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
    let inode = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
    // This thread's table is read, because threads may be in different network namespaces.
    let table = std::fs::read_to_string("/proc/thread-self/net/udp").ok()?;
    table.lines().find_map(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        (columns.get(INODE_COLUMN) == Some(&inode)).then(|| columns.last()?.parse().ok())?
    })
}

/// Time to live of multicast: it remains in the local network, because no router forwards it.
const MULTICAST_TTL: u32 = 1;
/// Linux doubles the requested size to account for its own overhead, and reports the doubled size.
const KERNEL_FACTOR: usize = if cfg!(target_os = "linux") { 2 } else { 1 };
const INODE_COLUMN: usize = 9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_grant_is_a_notice_with_the_sysctl_that_fixes_it() {
        let buffers = Buffers {
            receive_asked: 4 << 20,
            receive_granted: 212_992,
            send_asked: 2 << 20,
            send_granted: 2 << 20,
        };
        let notices = buffer_notices(&buffers);
        assert_eq!(notices.len(), 1);
        assert!(notices[0].text.contains("208 KiB granted of 4096 KiB"), "{}", notices[0].text);
        assert_eq!(notices[0].fix.as_deref(), Some("sysctl -w net.core.rmem_max=4194304"));
    }

    #[test]
    fn what_the_kernel_drops_is_counted() {
        let bindings =
            Bindings { interface: Ipv4Addr::LOCALHOST, port: Some(0), multicast_port: None };
        let sockets = Sockets::open(bindings).expect("sockets");
        let other = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let flood = vec![0; 60_000];
        let enough = 4 * Buffers::RECEIVE_REQUEST / flood.len();
        for _ in 0..enough {
            other.send_to(&flood, sockets.endpoint).expect("sent");
        }
        assert!(sockets.kernel_dropped() > 0);
    }
}

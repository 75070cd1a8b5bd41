use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::errno::Errno;
#[cfg(target_os = "linux")]
use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Socket, Type};

use super::assignment::Assignment;
use super::endpoint::{Background, Endpoint};
use super::error::NodeError;
use super::recorder::Recorder;
use super::settings::Settings;
use super::stamped::{Arrival, StampedSocket};
use crate::record::NodeReport;

/// Plain UDP multicast: one multicast address for each group, one send call for each message.
pub(super) struct Raw {
    socket: UdpSocket,
    background: Option<Background>,
    receivers: Vec<JoinHandle<()>>,
    is_over: Arc<AtomicBool>,
    received: Arc<AtomicU64>,
    refused: u64,
    /// Bytes of the smallest receive buffer. `None` for a sender.
    smallest_buffer: Option<usize>,
}

impl Raw {
    pub(super) fn start(work: &Assignment, recorder: &Arc<Recorder>) -> Result<Self, NodeError> {
        let is_stamped = Settings::read(work.settings.as_deref())?.kernel_times;
        let (is_over, received) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut receivers = Vec::new();
        let mut smallest_buffer = None;
        if work.role.receives() {
            for group in 0..work.groups + u32::from(work.background_mib > 0) {
                let (mut socket, buffer) = member(work.address, group, is_stamped)
                    .map_err(NodeError::io("cannot receive multicast"))?;
                smallest_buffer = Some(smallest_buffer.map_or(buffer, |it: usize| it.min(buffer)));
                let recorder = Arc::clone(recorder);
                let (is_over, received) = (Arc::clone(&is_over), Arc::clone(&received));
                receivers.push(thread::spawn(move || {
                    receive(&mut socket, &recorder, &is_over, &received);
                }));
            }
            thread::sleep(REPORTED_WITHIN);
        }
        let socket = sender(work.address).map_err(NodeError::io("cannot send multicast"))?;
        let has_background = work.background_mib > 0 && work.role.sends();
        let background = has_background.then(|| background(work)).transpose()?;
        Ok(Self { socket, background, receivers, is_over, received, refused: 0, smallest_buffer })
    }
}

impl Endpoint for Raw {
    fn send(&mut self, group: u32, message: Vec<u8>) -> Result<(), NodeError> {
        self.refused += send(&self.socket, group, &message)?;
        Ok(())
    }

    fn background(&mut self) -> Option<Background> {
        self.background.take()
    }

    fn finish(self: Box<Self>) -> NodeReport {
        self.is_over.store(true, Ordering::Relaxed);
        for receiver in self.receivers {
            receiver.join().expect("a receiving thread does not panic");
        }
        let size = self.smallest_buffer;
        let remark = size.filter(|size| *size < BUFFER).map(|size| {
            format!("a receive buffer has {size} of {BUFFER} bytes: net.core.rmem_max limits it")
        });
        let received = self.received.load(Ordering::Relaxed);
        let counters = [("datagrams_received", received), ("sends_refused", self.refused)];
        NodeReport {
            system: format!("raw {}", env!("CARGO_PKG_VERSION")),
            counters: counters.map(|(name, count)| (name.to_owned(), count)).into(),
            remarks: remark.into_iter().collect(),
        }
    }
}

/// Returns 1 if the queue of the interface was full, otherwise 0.
fn send(socket: &UdpSocket, group: u32, message: &[u8]) -> Result<u64, NodeError> {
    match socket.send_to(message, address(group)) {
        Ok(_) => Ok(0),
        // A full queue of the interface drops the datagram, like the network does.
        Err(error) if error.raw_os_error() == Some(Errno::ENOBUFS as i32) => Ok(1),
        Err(error) => Err(NodeError::io("cannot send a datagram")(error)),
    }
}

fn background(work: &Assignment) -> Result<Background, NodeError> {
    let socket = sender(work.address).map_err(NodeError::io("cannot send multicast"))?;
    let group = work.groups;
    Ok(Background::new(move |message| send(&socket, group, &message).map(drop)))
}

fn receive(
    socket: &mut StampedSocket,
    recorder: &Recorder,
    is_over: &AtomicBool,
    received: &AtomicU64,
) {
    let mut buffer = vec![0; MAX_DATAGRAM];
    while !is_over.load(Ordering::Relaxed) {
        // An error is a timeout, after which the flag is checked again.
        if let Ok(Arrival { bytes, at_ns, received_ns }) = socket.receive(&mut buffer) {
            received.fetch_add(1, Ordering::Relaxed);
            recorder.record(&buffer[..bytes], at_ns, received_ns);
        }
    }
}

fn sender(own: Ipv4Addr) -> std::io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    socket.set_multicast_if_v4(&own)?;
    socket.set_multicast_ttl_v4(TTL)?;
    // The kernel limits the size to its maximum, which is not an error.
    socket.set_send_buffer_size(BUFFER)?;
    Ok(socket.into())
}

/// Returns a socket of a group, and the bytes of its receive buffer.
fn member(own: Ipv4Addr, group: u32, is_stamped: bool) -> std::io::Result<(StampedSocket, usize)> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    socket.set_reuse_address(true)?;
    let buffer = set_receive_buffer(&socket)?;
    // The group's address instead of the wildcard keeps the datagrams of other groups out.
    socket.bind(&address(group).into())?;
    socket.join_multicast_v4(address(group).ip(), &own)?;
    socket.set_read_timeout(Some(CHECK))?;
    let socket = match is_stamped {
        true => StampedSocket::stamped(socket.into())?,
        false => StampedSocket::plain(socket.into()),
    };
    Ok((socket, buffer))
}

/// Enlarges the receive buffer, beyond the limit of the system if this is permitted. Returns its
/// size.
fn set_receive_buffer(socket: &Socket) -> std::io::Result<usize> {
    #[cfg(target_os = "linux")]
    let is_forced = setsockopt(socket, sockopt::RcvBufForce, &BUFFER).is_ok();
    #[cfg(not(target_os = "linux"))]
    let is_forced = false;
    if !is_forced {
        socket.set_recv_buffer_size(BUFFER)?;
    }
    // Linux reports twice the size, because it counts its own overhead.
    Ok(socket.recv_buffer_size()? / if cfg!(target_os = "linux") { 2 } else { 1 })
}

fn address(group: u32) -> SocketAddrV4 {
    let offset = group % (1 << 16);
    SocketAddrV4::new(Ipv4Addr::from_bits(FIRST.to_bits() + offset), PORT)
}

const FIRST: Ipv4Addr = Ipv4Addr::new(239, 192, 0, 1);
const PORT: u16 = 7490;
const TTL: u32 = 8;
const BUFFER: usize = 8 << 20;
const MAX_DATAGRAM: usize = 1 << 16;
const CHECK: Duration = Duration::from_millis(50);
/// The kernel reports a join some milliseconds later. A bridge with IGMP snooping forwards nothing
/// to the node before.
const REPORTED_WITHIN: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receive_buffer_has_the_size_that_is_reported() {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).expect("sockets are permitted");
        let before = socket.recv_buffer_size().expect("it is a socket");
        let size = set_receive_buffer(&socket).expect("a smaller size is no error");
        let real = socket.recv_buffer_size().expect("it is a socket");
        assert!(real >= before && (size == real || size == real / 2), "{before} {size} {real}");
        assert!(size <= BUFFER, "{size}");
        // A privileged process is not bound by `net.core.rmem_max`.
        #[cfg(target_os = "linux")]
        if setsockopt(&socket, sockopt::RcvBufForce, &BUFFER).is_ok() {
            assert_eq!(size, BUFFER);
        }
    }
}

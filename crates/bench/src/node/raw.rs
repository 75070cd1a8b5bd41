use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::errno::Errno;
use socket2::{Domain, Socket, Type};

use super::assignment::Assignment;
use super::endpoint::{Background, Endpoint};
use super::error::NodeError;
use super::recorder::Recorder;
use crate::clock;
use crate::record::NodeReport;

/// Plain UDP multicast: one multicast address for each group, one send call for each message.
pub(super) struct Raw {
    socket: UdpSocket,
    background: Option<Background>,
    receivers: Vec<JoinHandle<()>>,
    is_over: Arc<AtomicBool>,
    received: Arc<AtomicU64>,
    refused: u64,
}

impl Raw {
    pub(super) fn start(work: &Assignment, recorder: &Arc<Recorder>) -> Result<Self, NodeError> {
        let (is_over, received) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut receivers = Vec::new();
        if work.role.receives() {
            for group in 0..work.groups + u32::from(work.background_mib > 0) {
                let socket = member(work.address, group)
                    .map_err(NodeError::io("cannot receive multicast"))?;
                let recorder = Arc::clone(recorder);
                let (is_over, received) = (Arc::clone(&is_over), Arc::clone(&received));
                receivers.push(thread::spawn(move || {
                    receive(&socket, &recorder, &is_over, &received);
                }));
            }
        }
        let socket = sender(work.address).map_err(NodeError::io("cannot send multicast"))?;
        let has_background = work.background_mib > 0 && work.role.sends();
        let background = has_background.then(|| background(work)).transpose()?;
        Ok(Self { socket, background, receivers, is_over, received, refused: 0 })
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
        let received = self.received.load(Ordering::Relaxed);
        let counters = [("datagrams_received", received), ("sends_refused", self.refused)];
        NodeReport {
            cpu_us: 0,
            system: format!("raw {}", env!("CARGO_PKG_VERSION")),
            counters: counters.map(|(name, count)| (name.to_owned(), count)).into(),
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

fn receive(socket: &UdpSocket, recorder: &Recorder, is_over: &AtomicBool, received: &AtomicU64) {
    let mut buffer = vec![0; MAX_DATAGRAM];
    while !is_over.load(Ordering::Relaxed) {
        // An error is a timeout, after which the flag is checked again.
        if let Ok(bytes) = socket.recv(&mut buffer) {
            let at_ns = clock::monotonic_ns();
            received.fetch_add(1, Ordering::Relaxed);
            recorder.record(&buffer[..bytes], at_ns);
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

fn member(own: Ipv4Addr, group: u32) -> std::io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    socket.set_reuse_address(true)?;
    socket.set_recv_buffer_size(BUFFER)?;
    // The group's address instead of the wildcard keeps the datagrams of other groups out.
    socket.bind(&address(group).into())?;
    socket.join_multicast_v4(address(group).ip(), &own)?;
    socket.set_read_timeout(Some(CHECK))?;
    Ok(socket.into())
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

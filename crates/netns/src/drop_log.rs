use std::fs::File;
use std::io::{BufWriter, ErrorKind, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_netfilter::nflog::{
    ConfigCmd, ConfigMode, ConfigNla, PacketNla, ULogMessage, config_request,
};
use netlink_packet_netfilter::{NetfilterMessage, NetfilterMessageInner, NetfilterProtoFamily};
use netlink_sys::Socket;
use netlink_sys::constants::NETLINK_NETFILTER;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{setsockopt, sockopt};
use nix::time::{ClockId, clock_gettime};
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapReader, PcapWriter};
use pcap_file::{DataLink, TsResolution};

use crate::error::Error;
use crate::filter::Filter;

/// A running record of the datagrams that a filter drops.
///
/// Each datagram is written whole to a pcap file, as a raw IP packet. Its time stamp is that of
/// `CLOCK_MONOTONIC`, which all hosts of a lab share and programs use for intervals.
#[derive(Debug)]
pub struct DropLog {
    filter: Filter,
    path: PathBuf,
    /// Value of the filter's counter at the start.
    before: u64,
    recorded: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(), Error>>>,
}

/// A datagram that was dropped on receipt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// Time of the drop, by `CLOCK_MONOTONIC`.
    pub at: Duration,
    /// Address and port of the sender.
    pub source: SocketAddrV4,
    /// Address and port of the receiver, or of the multicast group.
    pub destination: SocketAddrV4,
    /// The payload of UDP.
    pub payload: Vec<u8>,
}

impl DropLog {
    /// Starts to record what the filter drops, as raw IP packets in the file `path`.
    pub(crate) fn start(filter: Filter, path: &Path) -> Result<Self, Error> {
        filter.create()?;
        let before = filter.dropped()?;
        let group = filter.log_group();
        let socket = filter.namespace().enter(|| open(group))??;
        let file = File::create(path).map_err(|error| Error::io(path.display(), &error))?;
        let header = PcapHeader {
            datalink: DataLink::RAW,
            ts_resolution: TsResolution::NanoSecond,
            ..PcapHeader::default()
        };
        let writer = PcapWriter::with_header(BufWriter::new(file), header);
        let writer = writer.map_err(|error| unwritten(path, error))?;
        let (recorded, stop) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let recorder = Recorder {
            socket,
            writer,
            path: path.to_owned(),
            recorded: Arc::clone(&recorded),
            stop: Arc::clone(&stop),
        };
        let thread =
            thread::Builder::new().name("drop-log".to_owned()).spawn(move || recorder.run());
        let thread = thread.map_err(|error| Error::io("cannot start a thread", &error))?;
        let path = path.to_owned();
        Ok(Self { filter, path, before, recorded, stop, thread: Some(thread) })
    }

    /// Ends the record. Returns the dropped datagrams in their order.
    ///
    /// Fails if the record lacks a datagram that nft has counted.
    pub fn finish(self) -> Result<Vec<Dropped>, Error> {
        let path = self.path.clone();
        self.complete()?;
        Dropped::read(&path)
    }

    /// Ends the record without reading it, for a caller that reads the file by itself or keeps it.
    ///
    /// Fails if the record lacks a datagram that nft has counted.
    pub fn complete(mut self) -> Result<(), Error> {
        let give_up = Instant::now() + PATIENCE;
        let mut counted = self.filter.dropped()? - self.before;
        while self.recorded.load(Ordering::Acquire) < counted && Instant::now() < give_up {
            thread::sleep(TURN);
        }
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        let recorded = self.recorded.load(Ordering::Acquire);
        counted = counted.max(recorded);
        if recorded < counted {
            let cause = format!("{}: {recorded} of {counted} drops recorded", self.path.display());
            return Err(Error::new(cause, "use a lower rate, or fewer hosts per processor"));
        }
        Ok(())
    }
}

impl Drop for DropLog {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // The record was abandoned, so that its errors have no reader.
            let _ = thread.join();
        }
    }
}

impl Dropped {
    /// Reads the datagrams of a record.
    pub fn read(path: &Path) -> Result<Vec<Self>, Error> {
        let file = File::open(path).map_err(|error| Error::io(path.display(), &error))?;
        let mut reader = PcapReader::new(file).map_err(|error| unread(path, error))?;
        let mut datagrams = Vec::new();
        while let Some(packet) = reader.next_packet() {
            let packet = packet.map_err(|error| unread(path, error))?;
            let datagram = Self::parse(packet.timestamp, &packet.data);
            datagrams.push(datagram.ok_or_else(|| unread(path, "a packet is not UDP over IPv4"))?);
        }
        Ok(datagrams)
    }

    fn parse(at: Duration, packet: &[u8]) -> Option<Self> {
        let header = usize::from(packet.first()? & 0xf) * 4;
        let field = |at: usize| packet.get(at..at + 4);
        let address = |at: usize| field(at).and_then(|it| <[u8; 4]>::try_from(it).ok());
        let number = |at: usize| Some(u16::from_be_bytes([*packet.get(at)?, *packet.get(at + 1)?]));
        let endpoint = |ip: usize, port: usize| {
            Some(SocketAddrV4::new(Ipv4Addr::from(address(ip)?), number(port)?))
        };
        Some(Self {
            at,
            source: endpoint(12, header)?,
            destination: endpoint(16, header + 2)?,
            payload: packet.get(header + 8..)?.to_vec(),
        })
    }
}

struct Recorder {
    socket: Socket,
    writer: PcapWriter<BufWriter<File>>,
    path: PathBuf,
    recorded: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Recorder {
    fn run(mut self) -> Result<(), Error> {
        let mut buffer = vec![0; LARGEST];
        loop {
            let stopping = self.stop.load(Ordering::Acquire);
            match self.socket.recv(&mut &mut buffer[..], 0) {
                Ok(bytes) => self.record(&buffer[..bytes])?,
                Err(error) if error.kind() == ErrorKind::WouldBlock && stopping => break,
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait(),
                // The kernel discarded records. The comparison of the counts reports it.
                Err(error) if error.raw_os_error() == Some(nix::libc::ENOBUFS) => {}
                Err(error) => return Err(Error::io("cannot receive from nflog", &error)),
            }
        }
        self.writer.into_writer().flush().map_err(|error| Error::io(self.path.display(), &error))
    }

    fn wait(&self) {
        let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        // After an error or an interruption, the socket is simply read again.
        let _ = poll(&mut fds, PollTimeout::from(POLL_MS));
    }

    fn record(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC);
        let now = now.map_err(|errno| Error::system("cannot read the clock", errno))?;
        let now = Duration::from(now);
        while !bytes.is_empty() {
            let message = <NetlinkMessage<NetfilterMessage>>::deserialize(bytes);
            let message = message.map_err(|error| unread(Path::new("nflog"), error))?;
            for packet in packets(&message) {
                let length = u32::try_from(packet.len()).unwrap_or(u32::MAX);
                let record = PcapPacket::new(now, length, packet);
                self.writer.write_packet(&record).map_err(|error| unwritten(&self.path, error))?;
                self.recorded.fetch_add(1, Ordering::Release);
            }
            let length = (message.header.length as usize).next_multiple_of(4).max(4);
            bytes = bytes.get(length..).unwrap_or_default();
        }
        Ok(())
    }
}

/// Opens a socket that receives whole packets of a group of nflog.
fn open(group: u16) -> Result<Socket, Error> {
    let failed =
        |error: std::io::Error| Error::io(format!("cannot open nflog group {group}"), &error);
    let mut socket = Socket::new(NETLINK_NETFILTER).map_err(failed)?;
    socket.bind_auto().map_err(failed)?;
    // Beyond the system's limit if this is permitted, otherwise up to it.
    let forced = setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BYTES);
    forced
        .or_else(|_| setsockopt(&socket, sockopt::RcvBuf, &RECEIVE_BYTES))
        .map_err(|errno| Error::system("cannot set the receive buffer of nflog", errno))?;
    let commands: Vec<ConfigNla> = vec![ConfigCmd::Bind.into(), ConfigMode::PACKET_MAX.into()];
    let mut request = config_request(NetfilterProtoFamily::IPv4, group, commands);
    request.finalize();
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    socket.send(&bytes, 0).map_err(failed)?;
    let mut buffer = vec![0; LARGEST];
    let length = socket.recv(&mut &mut buffer[..], 0).map_err(failed)?;
    let reply = <NetlinkMessage<NetfilterMessage>>::deserialize(&buffer[..length]);
    match reply.map_err(|error| unread(Path::new("nflog"), error))?.payload {
        NetlinkPayload::Error(refusal) if refusal.code.is_some() => Err(failed(refusal.to_io())),
        _ => socket.set_non_blocking(true).map(|()| socket).map_err(failed),
    }
}

fn packets(message: &NetlinkMessage<NetfilterMessage>) -> impl Iterator<Item = &[u8]> {
    let parts: &[PacketNla] = match &message.payload {
        NetlinkPayload::InnerMessage(NetfilterMessage {
            inner: NetfilterMessageInner::ULog(ULogMessage::Packet(parts)),
            ..
        }) => parts,
        _ => &[],
    };
    parts.iter().filter_map(|part| match part {
        PacketNla::Payload(packet) => Some(packet.as_slice()),
        _ => None,
    })
}

fn unwritten(path: &Path, error: impl std::fmt::Display) -> Error {
    let cause = format!("cannot write {}: {error}", path.display());
    Error::new(cause, "check whether the disk is full")
}

fn unread(path: &Path, error: impl std::fmt::Display) -> Error {
    let cause = format!("cannot read {}: {error}", path.display());
    Error::new(cause, "use a file that a drop log has written")
}

const LARGEST: usize = 256 << 10;
const RECEIVE_BYTES: usize = 32 << 20;
const POLL_MS: u16 = 20;
const TURN: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_secs(3);

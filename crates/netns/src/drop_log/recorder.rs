use std::fs::File;
use std::io::{BufWriter, ErrorKind, Write as _};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use netlink_packet_core::{NetlinkMessage, NetlinkPayload, Nla as _};
use netlink_packet_netfilter::nflog::{
    ConfigCmd, ConfigMode, ConfigNla, PacketNla, TimeStamp, ULogMessage, config_request,
};
use netlink_packet_netfilter::{NetfilterMessage, NetfilterMessageInner, NetfilterProtoFamily};
use netlink_sys::Socket;
use netlink_sys::constants::NETLINK_NETFILTER;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{setsockopt, sockopt};
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::{DataLink, TsResolution};

use super::clocks::Clocks;
use super::file::{unread, unwritten};
use crate::error::Error;

/// Writes the packets that a group of nflog receives to a file.
pub(super) struct Recorder {
    socket: Socket,
    writer: PcapWriter<BufWriter<File>>,
    path: PathBuf,
    /// Time of the last record.
    last: Duration,
    progress: Arc<Progress>,
}

/// The state that a recorder shares with its owner.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Number of packets written.
    pub(super) recorded: AtomicU64,
    /// Set by the owner, to end the recorder once nothing is left to receive.
    pub(super) stop: AtomicBool,
}

impl Recorder {
    /// Creates the file, and begins to receive. The caller must be in the namespace.
    pub(super) fn open(group: u16, path: &Path, progress: Arc<Progress>) -> Result<Self, Error> {
        let socket = open(group)?;
        let file = File::create(path).map_err(|error| Error::io(path.display(), &error))?;
        let header = PcapHeader {
            datalink: DataLink::RAW,
            ts_resolution: TsResolution::NanoSecond,
            ..PcapHeader::default()
        };
        let writer = PcapWriter::with_header(BufWriter::new(file), header);
        let writer = writer.map_err(|error| unwritten(path, error))?;
        Ok(Self { socket, writer, path: path.to_owned(), last: Duration::ZERO, progress })
    }

    /// Discards what has been received.
    pub(super) fn discard(&self) -> Result<(), Error> {
        let mut buffer = vec![0; LARGEST];
        while self.receive(&mut buffer)?.is_some() {}
        Ok(())
    }

    /// Records until the owner stops it.
    pub(super) fn run(mut self) -> Result<(), Error> {
        let mut buffer = vec![0; LARGEST];
        loop {
            let stopping = self.progress.stop.load(Ordering::Acquire);
            match self.receive(&mut buffer)? {
                Some(bytes) => self.record(&buffer[..bytes])?,
                None if stopping => break,
                None => self.wait(),
            }
        }
        self.writer.into_writer().flush().map_err(|error| Error::io(self.path.display(), &error))
    }

    /// Returns the length of the received messages, or `None` if there are none.
    fn receive(&self, buffer: &mut [u8]) -> Result<Option<usize>, Error> {
        match self.socket.recv(&mut &mut buffer[..], 0) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            // The kernel discarded records. The comparison of the counts reports it.
            Err(error) if error.raw_os_error() == Some(nix::libc::ENOBUFS) => Ok(Some(0)),
            Err(error) => Err(Error::io("cannot receive from nflog", &error)),
        }
    }

    fn wait(&self) {
        let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        // After an error or an interruption, the socket is simply read again.
        let _ = poll(&mut fds, PollTimeout::from(POLL_MS));
    }

    fn record(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        let clocks = Clocks::read()?;
        while !bytes.is_empty() {
            let message = <NetlinkMessage<NetfilterMessage>>::deserialize(bytes);
            let message = message.map_err(|error| unread(Path::new("nflog"), error))?;
            if let Some((packet, time)) = packet(&message) {
                let time = time.map_or(clocks.monotonic, |real| clocks.monotonic_at(real));
                // Times of packets in one microsecond are equal but for the error of the clocks.
                self.last = self.last.max(time);
                let length = u32::try_from(packet.len()).unwrap_or(u32::MAX);
                let record = PcapPacket::new(self.last, length, packet);
                self.writer.write_packet(&record).map_err(|error| unwritten(&self.path, error))?;
                self.progress.recorded.fetch_add(1, Ordering::Release);
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

/// Returns the packet in a message and the time of its drop by `CLOCK_REALTIME`.
fn packet(message: &NetlinkMessage<NetfilterMessage>) -> Option<(&[u8], Option<Duration>)> {
    let NetlinkPayload::InnerMessage(NetfilterMessage {
        inner: NetfilterMessageInner::ULog(ULogMessage::Packet(parts)),
        ..
    }) = &message.payload
    else {
        return None;
    };
    let packet = parts.iter().find_map(|part| match part {
        PacketNla::Payload(packet) => Some(packet.as_slice()),
        _ => None,
    });
    // Older kernels give a time only to packets that they have stamped on receipt.
    let time = parts.iter().find_map(|part| match part {
        PacketNla::Timestamp(stamp) => Some(real_time(stamp)),
        _ => None,
    });
    packet.map(|packet| (packet, time))
}

fn real_time(stamp: &TimeStamp) -> Duration {
    // The type has no accessors.
    let mut seconds = [0; 16];
    stamp.emit_value(&mut seconds);
    let (seconds, micros) = seconds.split_at(8);
    let number = |bytes: &[u8]| bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    Duration::from_secs(number(seconds)) + Duration::from_micros(number(micros))
}

const LARGEST: usize = 256 << 10;
const RECEIVE_BYTES: usize = 32 << 20;
const POLL_MS: u16 = 20;

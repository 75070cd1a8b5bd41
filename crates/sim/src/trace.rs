//! Captures every packet of a world as a pcapng file for Wireshark.
//!
//! Each host is a separate interface, named h0, h1 and so on. Packets are written with IPv4 and UDP
//! headers: as outbound where they are sent, and as inbound where they arrive. Packets that the
//! host rejects on arrival carry a comment with the reason. Source: the IETF draft "PCAP Next
//! Generation Capture File Format", sections 4.1 (section header), 4.2 (interface description), and
//! 4.3 (enhanced packet).

use std::io::{self, Write};

use carom_proto::{Endpoint, GroupId, Time};

use crate::ids::{HostIx, PORT};
use crate::tree::Goal;

pub(crate) struct Trace {
    out: Box<dyn Write + Send>,
    block: Vec<u8>,
    error: Option<io::Error>,
}

pub(crate) struct Captured<'a> {
    pub(crate) at: Time,
    pub(crate) host: HostIx,
    pub(crate) is_outbound: bool,
    pub(crate) source: HostIx,
    pub(crate) goal: Goal,
    pub(crate) datagram: &'a [u8],
    pub(crate) comment: Option<&'static str>,
}

impl Trace {
    pub(crate) fn new(out: Box<dyn Write + Send>, hosts: u32) -> Self {
        let mut trace = Self { out, block: Vec::new(), error: None };
        trace.begin(SECTION_HEADER);
        for part in [&BYTE_ORDER_MAGIC.to_le_bytes()[..], &1_u16.to_le_bytes(), &[0, 0]] {
            trace.block.extend_from_slice(part);
        }
        // Unknown section length.
        trace.block.extend_from_slice(&u64::MAX.to_le_bytes());
        trace.end();
        for host in 0..hosts {
            trace.begin(INTERFACE_DESCRIPTION);
            trace.block.extend_from_slice(&LINKTYPE_IPV4.to_le_bytes());
            trace.block.extend_from_slice(&[0, 0]);
            trace.block.extend_from_slice(&0_u32.to_le_bytes());
            trace.option(IF_NAME, HostIx(host).to_string().as_bytes());
            trace.option(IF_TSRESOL, &[9]);
            trace.option(END_OF_OPTIONS, &[]);
            trace.end();
        }
        trace
    }

    /// Writes one packet. After an error, nothing more is written.
    pub(crate) fn packet(&mut self, packet: &Captured<'_>) {
        self.begin(ENHANCED_PACKET);
        self.block.extend_from_slice(&packet.host.0.to_le_bytes());
        self.block.extend_from_slice(&((packet.at.0 >> 32) as u32).to_le_bytes());
        self.block.extend_from_slice(&(packet.at.0 as u32).to_le_bytes());
        let length = (packet.datagram.len() + IP_BYTES + UDP_BYTES) as u32;
        self.block.extend_from_slice(&length.to_le_bytes());
        self.block.extend_from_slice(&length.to_le_bytes());
        self.headers(packet);
        self.block.extend_from_slice(packet.datagram);
        self.pad();
        if let Some(comment) = packet.comment {
            self.option(COMMENT, comment.as_bytes());
        }
        let direction: u32 = if packet.is_outbound { 2 } else { 1 };
        self.option(EPB_FLAGS, &direction.to_le_bytes());
        self.option(END_OF_OPTIONS, &[]);
        self.end();
    }

    pub(crate) fn finish(mut self) -> io::Result<()> {
        match self.error.take() {
            Some(error) => Err(error),
            None => self.out.flush(),
        }
    }

    fn headers(&mut self, packet: &Captured<'_>) {
        let udp_bytes = (packet.datagram.len() + UDP_BYTES) as u16;
        let mut ip = [0_u8; IP_BYTES];
        ip[0] = 0x45;
        ip[2..4].copy_from_slice(&(udp_bytes + IP_BYTES as u16).to_be_bytes());
        (ip[8], ip[9]) = (64, 17);
        ip[12..16].copy_from_slice(&octets(packet.source.endpoint()));
        ip[16..20].copy_from_slice(&match packet.goal {
            Goal::Host(host) => octets(host.endpoint()),
            Goal::Group(group) => multicast_address(group),
            Goal::Everyone => [239, 255, 0, 0],
        });
        let checksum = !ip.chunks(2).fold(0_u32, |sum, pair| {
            let sum = sum + u32::from(u16::from_be_bytes([pair[0], pair[1]]));
            (sum & 0xffff) + (sum >> 16)
        }) as u16;
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        self.block.extend_from_slice(&ip);
        // A UDP checksum of zero means that none was computed.
        for field in [PORT, PORT, udp_bytes, 0] {
            self.block.extend_from_slice(&field.to_be_bytes());
        }
    }

    fn begin(&mut self, kind: u32) {
        self.block.clear();
        self.block.extend_from_slice(&kind.to_le_bytes());
        self.block.extend_from_slice(&[0; 4]);
    }

    /// Completes and writes the block, whose length is both at its start and at its end.
    fn end(&mut self) {
        let length = (self.block.len() + 4) as u32;
        self.block[4..8].copy_from_slice(&length.to_le_bytes());
        self.block.extend_from_slice(&length.to_le_bytes());
        if self.error.is_none() {
            self.error = self.out.write_all(&self.block).err();
        }
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        self.block.extend_from_slice(&code.to_le_bytes());
        self.block.extend_from_slice(&(value.len() as u16).to_le_bytes());
        self.block.extend_from_slice(value);
        self.pad();
    }

    fn pad(&mut self) {
        self.block.resize(self.block.len().next_multiple_of(4), 0);
    }
}

fn multicast_address(group: GroupId) -> [u8; 4] {
    let [_, x, y, z] = group.0.to_be_bytes();
    [239, x, y, z]
}

fn octets(endpoint: Endpoint) -> [u8; 4] {
    match endpoint.0.ip() {
        std::net::IpAddr::V4(address) => address.octets(),
        std::net::IpAddr::V6(_) => [0; 4],
    }
}

const SECTION_HEADER: u32 = 0x0A0D_0D0A;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER_MAGIC: u32 = 0x1A2B_3C4D;
/// Link type of raw IPv4, without a link layer.
const LINKTYPE_IPV4: u16 = 228;
const END_OF_OPTIONS: u16 = 0;
const COMMENT: u16 = 1;
const IF_NAME: u16 = 2;
const IF_TSRESOL: u16 = 9;
const EPB_FLAGS: u16 = 2;
const IP_BYTES: usize = 20;
const UDP_BYTES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("not poisoned").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn capture_has_whole_blocks_and_packets_of_known_bytes() {
        let written = Shared::default();
        let mut trace = Trace::new(Box::new(written.clone()), 2);
        trace.packet(&Captured {
            at: Time(0x1_0000_0002),
            host: HostIx(1),
            is_outbound: false,
            source: HostIx(0),
            goal: Goal::Group(GroupId(0xAA01_0203)),
            datagram: b"abcde",
            comment: Some("lost"),
        });
        trace.finish().expect("writing to memory succeeds");
        let bytes = written.0.lock().expect("not poisoned").clone();
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        let mut kinds = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            kinds.push(word(at));
            let length = word(at + 4) as usize;
            assert_eq!(word(at + length - 4) as usize, length, "the length is at both ends");
            at += length;
        }
        assert_eq!(kinds, [SECTION_HEADER, 1, 1, 6]);
        let ip: [u8; 28] = [
            0x45, 0, 0, 33, 0, 0, 0, 0, 64, 17, 0x7f, 0xc7, 10, 0, 0, 1, 239, 1, 2, 3, //
            0x1c, 0xe8, 0x1c, 0xe8, 0, 13, 0, 0,
        ];
        let packet = bytes.len() - (8 + 20 + 36 + 8 + 8 + 4 + 4);
        assert_eq!(word(packet + 12), 1, "the high half of the time");
        assert_eq!(bytes[packet + 28..packet + 56], ip);
        assert_eq!(&bytes[packet + 56..packet + 61], b"abcde");
    }

    struct Full;

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn full_disk_is_reported_at_the_end() {
        let error = Trace::new(Box::new(Full), 1).finish().expect_err("nothing was written");
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
}

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::time::Duration;

use pcap_file::pcap::PcapReader;

use super::file::unread;
use crate::error::Error;

/// A datagram that was dropped on receipt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// Time of the drop, by `CLOCK_MONOTONIC`. See [`DropLog`](crate::DropLog) for its accuracy.
    pub at: Duration,
    /// Address and port of the sender.
    pub source: SocketAddrV4,
    /// Address and port of the receiver, or of the multicast group.
    pub destination: SocketAddrV4,
    /// The payload of UDP.
    pub payload: Vec<u8>,
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
        if (packet.first()? >> 4, *packet.get(PROTOCOL)?) != (4, UDP) {
            return None;
        }
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

/// Place of the protocol's number in a header of IPv4.
const PROTOCOL: usize = 9;
const UDP: u8 = 17;

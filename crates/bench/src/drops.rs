//! The messages within the datagrams that were dropped at a node, from its packet log.

use std::collections::HashMap;
use std::io::{ErrorKind, Read};

use memchr::memmem::Finder;
use pcap_file::PcapError;
use pcap_file::pcap::PcapReader;

use crate::message::Magic;

/// The messages of one run in the datagrams that were dropped at one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drops {
    datagrams: u64,
    /// Time of the first drop of each message, by sender, number, and time before the send call.
    first_ns: HashMap<(u32, u32, u64), u64>,
}

impl Drops {
    /// Reads a pcap file of dropped datagrams, with any link type: a message is found by its first
    /// 24 bytes, wherever it is in the packet. The time stamps must be those of `CLOCK_MONOTONIC`,
    /// as in a drop log of a lab.
    ///
    /// Of a message in several datagrams, only the loss of the first one is found.
    ///
    /// # Errors
    /// Returns an error if the file is not a pcap file. A packet that is cut off at the end of the
    /// file is ignored, because a log may be read while its writer is being stopped.
    pub fn read(pcap: impl Read, magic: Magic) -> Result<Self, PcapError> {
        let mut reader = PcapReader::new(pcap)?;
        let finder = Finder::new(&magic.0);
        let mut drops = Self::default();
        while let Some(packet) = reader.next_packet() {
            let packet = match packet {
                Ok(packet) => packet,
                Err(PcapError::IoError(error)) if error.kind() == ErrorKind::UnexpectedEof => break,
                Err(error) => return Err(error),
            };
            let time = u64::try_from(packet.timestamp.as_nanos()).unwrap_or(u64::MAX);
            drops.add(&packet.data, &finder, time);
        }
        Ok(drops)
    }

    /// Returns the number of dropped datagrams, with and without messages.
    pub fn datagrams(&self) -> u64 {
        self.datagrams
    }

    /// Returns the time of the first drop of a message, by `CLOCK_MONOTONIC` in nanoseconds.
    ///
    /// `sent_ns` is the time in the header of the message. The XOR of an odd number of messages, as
    /// in a repair, can begin like another message of the run, but has another time.
    pub fn first_ns(&self, sender: u32, number: u32, sent_ns: u64) -> Option<u64> {
        self.first_ns.get(&(sender, number, sent_ns)).copied()
    }

    fn add(&mut self, packet: &[u8], finder: &Finder<'_>, at_ns: u64) {
        self.datagrams += 1;
        for place in finder.find_iter(packet) {
            let words = packet.get(place + 8..place + 24).and_then(<[u8]>::first_chunk::<16>);
            let Some(words) = words.map(|words| u128::from_le_bytes(*words)) else { continue };
            let message = (words as u32, (words >> 32) as u32, (words >> 64) as u64);
            let first = self.first_ns.entry(message).or_insert(at_ns);
            *first = at_ns.min(*first);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pcap_file::pcap::{PcapPacket, PcapWriter};

    use super::*;
    use crate::message::{HEADER_BYTES, Header};

    const MAGIC: Magic = Magic([7; 8]);

    fn message(magic: Magic, number: u32) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES + 5];
        Header { magic, sender: 3, number, sent_ns: sent_ns(number) }.write(&mut bytes);
        bytes
    }

    fn sent_ns(number: u32) -> u64 {
        1_000_000 + u64::from(number) * 3_125_007
    }

    fn log(packets: &[(u64, Vec<u8>)]) -> Vec<u8> {
        let mut writer = PcapWriter::new(Vec::new()).expect("a vector is writable");
        for (us, data) in packets {
            let bytes = u32::try_from(data.len()).expect("a packet is small");
            let packet = PcapPacket::new(Duration::from_micros(*us), bytes, data);
            writer.write_packet(&packet).expect("a vector is writable");
        }
        writer.into_writer()
    }

    #[test]
    fn every_message_of_a_datagram_is_found_with_its_first_time() {
        let both = [vec![0; 42], message(MAGIC, 5), message(MAGIC, 6)].concat();
        let log = log(&[(20, message(MAGIC, 6)), (10, both), (5, message(Magic([8; 8]), 5))]);
        let drops = Drops::read(&*log, MAGIC).expect("it is a pcap file");
        assert_eq!(drops.datagrams(), 3);
        assert_eq!(drops.first_ns(3, 5, sent_ns(5)), Some(10_000));
        assert_eq!(drops.first_ns(3, 6, sent_ns(6)), Some(10_000));
        assert_eq!(drops.first_ns(3, 7, sent_ns(7)), None);
    }

    #[test]
    fn repair_of_an_odd_number_of_messages_is_no_message() {
        let xor = (0..7).map(|number| message(MAGIC, number)).reduce(|sum, message| {
            sum.iter().zip(message).map(|(byte, other)| byte ^ other).collect()
        });
        let xor = xor.expect("there are several");
        let header = Header::read(&xor).expect("it is long enough");
        assert_eq!((header.magic, header.sender, header.number), (MAGIC, 3, 7), "it looks like 7");
        let drops = Drops::read(&*log(&[(1, xor)]), MAGIC).expect("it is a pcap file");
        assert_eq!((drops.datagrams(), drops.first_ns(3, 7, sent_ns(7))), (1, None));
    }

    #[test]
    fn log_that_is_cut_off_is_read_up_to_there() {
        let log = log(&[(1, message(MAGIC, 1)), (2, message(MAGIC, 2))]);
        let drops = Drops::read(&log[..log.len() - 1], MAGIC).expect("its head is complete");
        assert_eq!((drops.datagrams(), drops.first_ns(3, 2, sent_ns(2))), (1, None));
        assert!(Drops::read(&b"no log"[..], MAGIC).is_err());
    }

    #[test]
    fn magic_at_the_end_of_a_packet_is_no_message() {
        let log = log(&[(1, message(MAGIC, 1)[..23].to_vec())]);
        let drops = Drops::read(&*log, MAGIC).expect("it is a pcap file");
        assert_eq!(drops.first_ns, HashMap::default());
    }
}

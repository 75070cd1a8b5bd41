//! Splits datagrams into parts and joins the parts again.
//!
//! A datagram can exceed the path MTU if the path MTU has decreased since the datagram was built,
//! or if the datagram is relayed or retransmitted along another path. Parts are not retransmitted:
//! if one is lost, the datagram is lost.

use std::collections::VecDeque;
use std::time::Duration;

use carom_proto::wire::MAX_DATAGRAM_BYTES;
use carom_proto::{Endpoint, NodeId, Origin, Time};

use super::paths::{PART_OVERHEAD, Packet, Part};
use crate::shared::status::NetCounters;

/// Encodes a datagram in parts. Returns the size, in bytes, of each part except the last.
pub(crate) fn split(
    origin: Origin,
    id: u32,
    datagram: &[u8],
    most: usize,
    out: &mut Vec<u8>,
) -> usize {
    let room = most.saturating_sub(PART_OVERHEAD).max(MIN_PART_BYTES);
    for (index, bytes) in datagram.chunks(room).enumerate() {
        let (offset, total) = ((index * room) as u16, datagram.len() as u16);
        Packet::Part(Part { id, offset, total, bytes: bytes.to_vec() }).encode(origin, out);
    }
    room + PART_OVERHEAD
}

#[derive(Debug, Default)]
pub(crate) struct Fragments {
    pending: VecDeque<Reassembly>,
    pub(crate) counters: NetCounters,
}

#[derive(Debug)]
struct Reassembly {
    source: Endpoint,
    sender: NodeId,
    id: u32,
    since: Time,
    bytes: Vec<u8>,
    received: Vec<(u16, u16)>,
}

impl Fragments {
    pub(crate) fn take(
        &mut self,
        now: Time,
        source: Endpoint,
        sender: NodeId,
        part: &Part,
    ) -> Option<Vec<u8>> {
        let Part { id, offset, total, ref bytes } = *part;
        let end = usize::from(offset) + bytes.len();
        if bytes.is_empty() || end > usize::from(total) || usize::from(total) > MAX_DATAGRAM_BYTES {
            return None;
        }
        let is_it = |it: &Reassembly| (it.source, it.sender, it.id) == (source, sender, id);
        let index = self.pending.iter().position(is_it);
        let index = index.filter(|index| self.pending[*index].bytes.len() == usize::from(total));
        let index = index.unwrap_or_else(|| {
            self.make_room(now);
            let (bytes, received) = (vec![0; total.into()], Vec::new());
            self.pending.push_back(Reassembly { source, sender, id, since: now, bytes, received });
            self.pending.len() - 1
        });
        let pending = &mut self.pending[index];
        if pending.received.iter().any(|(from, to)| offset < *to && usize::from(*from) < end) {
            return None;
        }
        pending.received.push((offset, end as u16));
        pending.bytes[offset.into()..end].copy_from_slice(bytes);
        let has: usize = pending.received.iter().map(|(from, to)| usize::from(to - from)).sum();
        if has < pending.bytes.len() {
            return None;
        }
        self.counters.datagrams_joined += 1;
        self.pending.remove(index).map(|pending| pending.bytes)
    }

    fn make_room(&mut self, now: Time) {
        let before = self.pending.len();
        self.pending.retain(|pending| now.since(pending.since) < MAX_AGE);
        while self.pending.len() >= MAX_PENDING {
            self.pending.pop_front();
        }
        self.counters.datagrams_unjoined += (before - self.pending.len()) as u64;
    }
}

/// Minimum payload of a part, in bytes. It limits a datagram to about 1100 parts.
const MIN_PART_BYTES: usize = 60;
/// Maximum number of incomplete datagrams, each of up to 64 KiB.
const MAX_PENDING: usize = 64;
const MAX_AGE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use carom_proto::wire::Datagram;

    const SOURCE: Endpoint =
        Endpoint(std::net::SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1));
    const SENDER: NodeId = NodeId(5);

    fn parts(id: u32, datagram: &[u8], most: usize) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        let size = split(SENDER.into(), id, datagram, most, &mut out);
        out.chunks(size).map(<[u8]>::to_vec).collect()
    }

    fn take(fragments: &mut Fragments, now: Time, part: &[u8]) -> Option<Vec<u8>> {
        let datagram = Datagram::parse(part).expect("a datagram");
        let (sender, packet) = (datagram.header().sender, Packet::decode(&datagram));
        let Ok(Packet::Part(part)) = packet else { panic!("no part") };
        fragments.take(now, SOURCE, sender, &part)
    }

    #[test]
    fn a_datagram_in_parts_is_whole_again_in_any_order() {
        let datagram: Vec<u8> = (0..5000_u32).map(|it| it as u8).collect();
        for most in [128, 548, 1472] {
            let mut fragments = Fragments::default();
            let mut parts = parts(9, &datagram, most);
            assert!(parts.iter().all(|part| part.len() <= most));
            let last = parts.remove(1);
            for part in parts.iter().rev().chain(&parts) {
                assert_eq!(take(&mut fragments, Time::ZERO, part), None);
            }
            assert_eq!(take(&mut fragments, Time::ZERO, &last), Some(datagram.clone()));
            let joined = NetCounters { datagrams_joined: 1, ..NetCounters::default() };
            assert_eq!(fragments.counters, joined);
        }
    }

    #[test]
    fn what_stays_incomplete_is_given_up_within_bounds_and_counted() {
        let mut fragments = Fragments::default();
        for id in 0..1000 {
            take(&mut fragments, Time::ZERO, &parts(id, &[7; 60_000], 1000)[0]);
        }
        assert_eq!(fragments.pending.len(), MAX_PENDING);
        assert_eq!(fragments.counters.datagrams_unjoined, 1000 - MAX_PENDING as u64);
        let later = Time::ZERO + MAX_AGE;
        take(&mut fragments, later, &parts(5000, &[7; 3000], 1000)[0]);
        assert_eq!((fragments.pending.len(), fragments.counters.datagrams_unjoined), (1, 1000));
    }

    #[test]
    fn parts_that_contradict_each_other_make_nothing() {
        let mut fragments = Fragments::default();
        let mut take = |offset, total, bytes: &[u8]| {
            let part = Part { id: 1, offset, total, bytes: bytes.to_vec() };
            fragments.take(Time::ZERO, SOURCE, SENDER, &part)
        };
        assert_eq!(take(0, 10, &[]), None);
        assert_eq!(take(5, 10, &[1; 6]), None, "beyond the end");
        assert_eq!(take(0, 10, &[1; 6]), None);
        assert_eq!(take(5, 10, &[1; 5]), None, "partly received already");
        assert_eq!(take(6, 11, &[1; 5]), None, "a part of another datagram");
        assert_eq!(take(6, 10, &[2; 4]), Some(vec![1, 1, 1, 1, 1, 1, 2, 2, 2, 2]));
    }
}

use super::*;
use crate::lateral::StreamStart;
use crate::lateral::prefetch::STREAMS_THAT_FIT;
use crate::wire::Datagram;
use crate::{LOOK_AHEAD, RateOfFire};

const GROUPS: u32 = 40;
const MEMBERS: u64 = 31;

fn sent(datagrams: &[Vec<u8>], prefetches: bool) -> Vec<u8> {
    let stream_start = StreamStart::FromFirst;
    let config = Config { stream_start, buffer_bytes: 100_000, ..Config::default() };
    let mut engine = Lateral::new(NodeId(0), config, 1);
    let profile = Profile::TimeCritical(RateOfFire::new(8, 5));
    for group in (1..=GROUPS).map(GroupId) {
        let settings = GroupSettings { profile, name_check: 0 };
        engine.join(Time(0), group, settings).expect("the group is new");
        for node in (1..=MEMBERS).map(NodeId) {
            let kind = ViewChangeKind::Joined;
            engine.handle_view(Time(0), &ViewChange { group, node, kind, version: 1 });
        }
    }
    let mut out = Vec::new();
    for waiting in datagrams.chunks(LOOK_AHEAD + 1) {
        let waiting = waiting.iter().filter_map(|it| Datagram::parse(it).ok());
        let waiting: Vec<Datagram<'_>> = waiting.collect();
        if prefetches {
            engine.look_ahead(&waiting);
        }
        for datagram in &waiting {
            engine.handle_datagram(Time(1), datagram);
        }
        while engine.poll_transmit(&mut out).is_some() {}
    }
    let streams = &engine.receiver.streams;
    assert!(streams.len() > STREAMS_THAT_FIT && streams.evictions().1 > 0);
    engine.check();
    out
}

#[test]
fn an_outbox_that_nobody_empties_is_bounded() {
    let mut engine = Lateral::new(NodeId(0), Config::default(), 1);
    let open = Packet::Open { nonce: 1 };
    (0..(1 << 16) + 3).for_each(|_| engine.cx.transmit_to(NodeId(1), open));
    assert_eq!(engine.counters().outbox_dropped, 3);
}

#[test]
fn prefetching_changes_nothing() {
    let mut rng = Rng::new(1);
    let symbol = Symbol::of_message(&mut Arena::default(), Time(0), None, b"a message");
    let mut datagrams = Vec::new();
    for number in 0..4 {
        // The last group is one that this node has not joined.
        for group in 1..=GROUPS + 1 {
            for node in 1..=MEMBERS {
                let seqno = SeqNo::FIRST.plus(number);
                let packet = Packet::Data { seqno, confirm: false, symbol: symbol.bytes() };
                let mut datagram = Vec::new();
                packet.encode(NodeId(node), GroupId(group), 1, &mut datagram);
                if rng.chance(0.02) {
                    datagram.truncate(rng.below(datagram.len()));
                }
                datagrams.push(datagram);
            }
        }
    }
    let without = sent(&datagrams, false);
    assert!(without.len() > 10_000);
    assert!(without == sent(&datagrams, true));
}

use super::*;
use crate::lateral::packet::symbol::Arena;

const SECOND: Duration = Duration::from_secs(1);
const GROUP: GroupIx = GroupIx(0);

struct Rig {
    streams: Streams,
    stream: StreamIx,
    arena: Arena,
}

impl Rig {
    fn new(max_bytes: usize) -> Self {
        let mut streams = Streams::new(1, max_bytes, SECOND);
        let stream = streams.open(NodeId(1), GROUP, GroupId(1), SeqNo(u32::MAX - 1), true);
        Self { streams, stream, arena: Arena::default() }
    }

    fn hold(&mut self, now: Time, seqno: SeqNo) {
        let symbol = Symbol::of_message(&mut self.arena, now, None, &[7; 1000]);
        if let Some(missing) = self.window().missing(seqno) {
            self.streams.losses.remove(missing);
        }
        self.streams.hold(now, self.stream, seqno, symbol, Arrival::Multicast);
    }

    fn window(&self) -> &receive_window::ReceiveWindow {
        &self.streams.get(self.stream).window
    }
}

#[test]
fn window_follows_the_numbers_across_their_wrap() {
    let mut rig = Rig::new(1 << 20);
    rig.hold(Time(0), SeqNo(u32::MAX - 1));
    rig.hold(Time(0), SeqNo(u32::MAX));
    assert_eq!(rig.window().end(), SeqNo(0));
    rig.streams.push_missing(Time(0), rig.stream, Time(9));
    rig.hold(Time(0), SeqNo(1));
    assert_eq!(rig.window().settled_to(), SeqNo(0));
    assert_eq!(rig.window().missing(SeqNo(0)), Some(MissingIx(0)));
    assert!(matches!(rig.window().place(SeqNo(5)), Place::Ahead));
    assert!(matches!(rig.window().place(SeqNo(u32::MAX - 2)), Place::Before));
    rig.hold(Time(0), SeqNo(0));
    assert_eq!(rig.window().settled_to(), SeqNo(2));
    rig.streams.check();
}

#[test]
fn packet_given_up_is_settled() {
    let mut rig = Rig::new(1 << 20);
    rig.streams.push_missing(Time(0), rig.stream, Time(9));
    rig.hold(Time(0), SeqNo(u32::MAX));
    rig.streams.give_up(rig.stream, SeqNo(u32::MAX - 1));
    assert_eq!(rig.window().settled_to(), SeqNo(0));
    assert!(matches!(rig.window().place(SeqNo(u32::MAX - 1)), Place::Before));
    rig.streams.check();
}

#[test]
fn oldest_packets_are_evicted_by_bytes_and_by_age() {
    let mut rig = Rig::new(70_000);
    for number in 0..100 {
        rig.hold(Time(number), SeqNo(u32::MAX - 1).plus(number as u32));
        rig.streams.check();
    }
    assert!(rig.streams.bytes() <= 70_000);
    assert_eq!(rig.streams.evictions(), (0, 100 - 70_000 / 1116));
    assert!(rig.window().holds(SeqNo(97)));
    assert!(!rig.window().holds(SeqNo(5)));
    rig.streams.evict_old(Time(50) + SECOND);
    assert!(!rig.window().holds(SeqNo(48)));
    assert!(rig.window().holds(SeqNo(49)));
    rig.streams.evict_old(Time(100) + SECOND);
    assert_eq!((rig.streams.bytes(), rig.streams.next_eviction()), (0, None));
    assert!(matches!(rig.window().place(SeqNo(97)), Place::Before));
    rig.streams.check();
}

#[test]
fn leaving_a_group_drops_its_packets() {
    let mut rig = Rig::new(1 << 20);
    let other = rig.streams.open(NodeId(1), GroupIx(1), GroupId(2), SeqNo(1), true);
    rig.hold(Time(0), SeqNo(u32::MAX - 1));
    let (removed, _) = rig.streams.remove_group(GROUP);
    assert_eq!(removed.len(), 1);
    assert_eq!((rig.streams.bytes(), rig.streams.next_eviction()), (0, None));
    assert_eq!(rig.streams.find(GROUP, NodeId(1)), None);
    assert_eq!(rig.streams.find(GroupIx(1), NodeId(1)), Some(other));
}

#[test]
fn group_finds_its_streams_after_any_removal() {
    let mut streams = Streams::new(1, 1 << 20, SECOND);
    let other = GroupIx(1);
    for node in 0..300 {
        let (group, id) = if node % 3 == 0 { (other, GroupId(2)) } else { (GROUP, GroupId(1)) };
        streams.open(NodeId(node), group, id, SeqNo(1), true);
    }
    let mut removed = 0;
    for _ in 0..10 {
        while let Some(ix) = streams.next_idle(GROUP, |node| node.0 >= 250) {
            assert_eq!(streams.remove(ix).group, GROUP);
            removed += 1;
            streams.check();
        }
    }
    assert_eq!(removed, 34);
    assert_eq!(streams.of_group(GROUP).count(), 200 - 34);
    assert_eq!(streams.remove_group(GROUP).0.len(), 200 - 34);
    assert_eq!((streams.of_group(GROUP).count(), streams.of_group(other).count()), (0, 100));
    streams.check();
}

//! A node in many groups with many members, for benchmarks.

use carom_proto::lateral::packet::Packet;
use carom_proto::lateral::packet::symbol::{Arena, Symbol};
use carom_proto::lateral::{Config, Lateral, StreamStart};
use carom_proto::wire::Datagram;
use carom_proto::*;

pub(crate) const RACK: u64 = 16;

pub(crate) struct Crowd {
    engine: Lateral,
    groups: u32,
    symbol: Symbol,
    out: Vec<u8>,
    now: Time,
}

impl Crowd {
    /// Creates a node in `groups` groups with the same `members` other members. The last `senders`
    /// of them have sent a message in each group.
    pub(crate) fn new(groups: u32, members: u64, senders: u64) -> Self {
        let mut crowd = Self::alone(groups);
        crowd.admit(members);
        for node in members.saturating_sub(senders)..members {
            (0..groups).for_each(|group| crowd.receive(GroupId(group), NodeId(node + 1)));
        }
        crowd
    }

    /// Creates a node in `groups` groups, each with `members` other members. Each of these is in no
    /// other group, and has sent a message.
    #[allow(dead_code, reason = "some benchmarks do not use it")]
    pub(crate) fn apart(groups: u32, members: u64) -> Self {
        let mut crowd = Self::alone(groups);
        for group in (0..groups).map(GroupId) {
            let first = 1 + u64::from(group.0) * members;
            for node in (first..first + members).map(NodeId) {
                crowd.admit_to(group, node);
                crowd.receive(group, node);
            }
        }
        crowd
    }

    fn alone(groups: u32) -> Self {
        let config = Config { stream_start: StreamStart::FromFirst, ..Config::default() };
        let mut engine = Lateral::new(NodeId(0), config, 12);
        let profile = Profile::TimeCritical(RateOfFire::new(8, 5));
        let settings = GroupSettings { profile, name_check: 0 };
        let now = Time(0);
        for group in (0..groups).map(GroupId) {
            engine.join(now, group, settings).expect("the settings are right");
        }
        let symbol = Symbol::of_message(&mut Arena::default(), now, None, b"a message");
        Self { engine, groups, symbol, out: Vec::with_capacity(2048), now }
    }

    pub(crate) fn admit(&mut self, members: u64) {
        for group in (0..self.groups).map(GroupId) {
            (1..=members).for_each(|node| self.admit_to(group, NodeId(node)));
        }
    }

    fn admit_to(&mut self, group: GroupId, node: NodeId) {
        let kind = ViewChangeKind::Joined;
        self.engine.handle_view(self.now, &ViewChange { group, node, kind, version: 1 });
    }

    pub(crate) fn fail_rack(&mut self) {
        for node in (1..=RACK).map(NodeId) {
            for group in (0..self.groups).map(GroupId) {
                let change = ViewChange { group, node, kind: ViewChangeKind::Failed, version: 2 };
                self.engine.handle_view(self.now, &change);
            }
        }
        self.receive(GroupId(0), NodeId(RACK + 1));
    }

    #[allow(dead_code, reason = "some benchmarks do not use it")]
    pub(crate) fn leave_all(&mut self) {
        (0..self.groups).for_each(|group| self.engine.leave(self.now, GroupId(group)));
        self.drain();
    }

    fn receive(&mut self, group: GroupId, from: NodeId) {
        let packet =
            Packet::Data { seqno: SeqNo::FIRST, confirm: false, symbol: self.symbol.bytes() };
        let mut datagram = Vec::with_capacity(256);
        packet.encode(from, group, 1, &mut datagram);
        self.engine.handle_datagram(self.now, &Datagram::parse(&datagram).expect("a datagram"));
        self.drain();
    }

    fn drain(&mut self) {
        while self.engine.poll_transmit(&mut self.out).is_some() {
            self.out.clear();
        }
        while self.engine.poll_event().is_some() {}
    }
}

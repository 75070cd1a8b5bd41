//! The load of section 4.2 of the Ricochet paper, as node 0 receives it.
//!
//! There are 64 nodes, each in `groups_per_node` random groups of ten members on average, with
//! rate-of-fire (8,5) and 1 KiB messages. Only the engine is measured. The datagrams of a batch are
//! ready in buffers, as after a `recvmmsg`, and the buffers are reused for the next batch.

use std::collections::BTreeMap;

use carom_proto::lateral::packet::Packet;
use carom_proto::lateral::packet::symbol::{Arena, Symbol};
use carom_proto::lateral::{Config, Lateral, StreamStart};
use carom_proto::wire::Datagram;
use carom_proto::*;
use smallvec::SmallVec;

/// Number of nodes in the cluster of the papers.
const NODES: usize = 64;
const GROUP_SIZE: usize = 10;
const PAYLOAD_BYTES: usize = 1024;

pub(crate) struct Workload {
    engine: Lateral,
    streams: Vec<(GroupId, NodeId, SeqNo)>,
    /// Nodes outside these groups that could join them, in the form of `streams`.
    absent: Vec<(GroupId, NodeId, SeqNo)>,
    changes: Vec<ViewChange>,
    symbol: Symbol,
    batch: Vec<Vec<u8>>,
    out: Vec<u8>,
    rng: Rng,
    now: Time,
}

impl Workload {
    pub(crate) fn new(groups_per_node: usize, warm_up: usize, batch: usize) -> Self {
        let mut rng = Rng::new(11);
        let members = memberships(groups_per_node, &mut rng);
        let mut engine = Lateral::new(NodeId(0), config(), 12);
        let (mut streams, mut absent) = (Vec::new(), Vec::new());
        for (group, nodes) in members.iter().filter(|(_, nodes)| nodes.contains(&0)) {
            engine.join(Time(0), *group, settings()).expect("the settings are right");
            for node in 1..NODES as u64 {
                let stream = (*group, NodeId(node), SeqNo::FIRST);
                if nodes.contains(&node) {
                    engine.handle_view(Time(0), &change(stream, ViewChangeKind::Joined));
                    streams.push(stream);
                } else {
                    absent.push(stream);
                }
            }
        }
        let payload = [0xA5; PAYLOAD_BYTES];
        let symbol = Symbol::of_message(&mut Arena::default(), Time(0), None, &payload);
        let batch = vec![Vec::with_capacity(2048); batch];
        let out = Vec::with_capacity(2048);
        let (changes, now) = (Vec::new(), Time(0));
        let mut workload = Self { engine, streams, absent, changes, symbol, batch, out, rng, now };
        for _ in 0..=warm_up / workload.batch.len() {
            workload.refill();
            workload.run();
        }
        workload.refill();
        workload
    }

    pub(crate) fn refill(&mut self) {
        (0..self.batch.len()).for_each(|place| self.refill_one(place));
    }

    fn refill_one(&mut self, place: usize) {
        let choice = self.rng.below(self.streams.len());
        let (group, node, seqno) = &mut self.streams[choice];
        let datagram = &mut self.batch[place];
        datagram.clear();
        let packet = Packet::Data { seqno: *seqno, confirm: false, symbol: self.symbol.bytes() };
        packet.encode(*node, *group, 1, datagram);
        *seqno = seqno.next();
    }

    /// Chooses a view change for each packet of the next batch, and encodes the packets. In turn, a
    /// random member leaves its group, and a random absent node joins one.
    #[allow(dead_code, reason = "some users of the workload do not change views")]
    pub(crate) fn plan_changes(&mut self) {
        self.changes.clear();
        for place in 0..self.batch.len() {
            let (from, to, kind) = if place.is_multiple_of(2) {
                (&mut self.streams, &mut self.absent, ViewChangeKind::Left)
            } else {
                (&mut self.absent, &mut self.streams, ViewChangeKind::Joined)
            };
            let stream = from.swap_remove(self.rng.below(from.len()));
            to.push(stream);
            self.changes.push(change(stream, kind));
            self.refill_one(place);
        }
    }

    /// Applies the planned changes. After each change, receives a packet, which pays for deferred
    /// work. Returns the number of messages delivered.
    #[allow(dead_code, reason = "some users of the workload do not change views")]
    pub(crate) fn run_changes(&mut self) -> usize {
        let mut delivered = 0;
        for (change, datagram) in self.changes.iter().zip(&self.batch) {
            self.now.0 += 1_000_000;
            self.engine.handle_view(self.now, change);
            self.engine.handle_datagram(self.now, &Datagram::parse(datagram).expect("a datagram"));
            delivered += take_output(&mut self.engine, &mut self.out);
        }
        delivered
    }

    pub(crate) fn run(&mut self) -> usize {
        let mut delivered = 0;
        for datagrams in self.batch.chunks(LOOK_AHEAD) {
            let datagrams = datagrams.iter().map(|it| Datagram::parse(it).expect("a datagram"));
            let datagrams: SmallVec<[Datagram<'_>; LOOK_AHEAD]> = datagrams.collect();
            self.engine.look_ahead(&datagrams);
            for datagram in &datagrams {
                self.now.0 += 1_000_000;
                self.engine.handle_datagram(self.now, datagram);
                delivered += take_output(&mut self.engine, &mut self.out);
            }
        }
        delivered
    }

    #[allow(dead_code, reason = "some users of the workload do not read them")]
    pub(crate) fn counters(&self) -> lateral::Counters {
        self.engine.counters()
    }
}

fn take_output(engine: &mut Lateral, out: &mut Vec<u8>) -> usize {
    while engine.poll_transmit(out).is_some() {
        out.clear();
    }
    let mut delivered = 0;
    while let Some(event) = engine.poll_event() {
        delivered += usize::from(matches!(event, Event::Message(_)));
    }
    delivered
}

fn change((group, node, _): (GroupId, NodeId, SeqNo), kind: ViewChangeKind) -> ViewChange {
    ViewChange { group, node, kind, version: 1 }
}

/// Returns the members of each group. Each node joins random ones of the paper's `d n / s` groups.
fn memberships(groups_per_node: usize, rng: &mut Rng) -> BTreeMap<GroupId, Vec<u64>> {
    let groups = (groups_per_node * NODES).div_ceil(GROUP_SIZE);
    let mut members: BTreeMap<GroupId, Vec<u64>> = BTreeMap::new();
    let mut choice: Vec<u32> = (1..=groups as u32).collect();
    for node in 0..NODES as u64 {
        rng.choose_to_front(&mut choice, groups_per_node);
        for group in &choice[..groups_per_node] {
            members.entry(GroupId(*group)).or_default().push(node);
        }
    }
    members
}

/// Returns the default configuration with two exceptions. All streams exist from the start, and the
/// data buffer is bounded by bytes, because the engine's timers for the age of packets are not run.
fn config() -> Config {
    Config { stream_start: StreamStart::FromFirst, buffer_bytes: 4 << 20, ..Config::default() }
}

fn settings() -> GroupSettings {
    GroupSettings { profile: Profile::TimeCritical(RateOfFire::new(8, 5)), name_check: 0 }
}

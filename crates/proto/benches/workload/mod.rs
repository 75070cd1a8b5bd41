//! The load of Ricochet's section 4.2: 64 nodes, each in `groups_per_node` random groups of ten
//! members on average, (8,5), 1 KiB messages. What node 0 receives of it is made in advance, so
//! that nothing but its engine is measured.

use std::collections::BTreeMap;

use carom_proto::lateral::{Config, Lateral, StreamStart};
use carom_proto::*;

/// Nodes in the papers' cluster.
const NODES: usize = 64;
/// Members of a group on average.
const GROUP_SIZE: usize = 10;
/// Bytes of a message.
const PAYLOAD_BYTES: usize = 1024;

/// An engine that is warm, and what it will receive.
pub(crate) struct Workload {
    engine: Lateral,
    datagrams: Vec<Vec<u8>>,
    out: Vec<u8>,
    now: Time,
}

impl Workload {
    /// `packets` data packets for a node in `groups_per_node` groups; as many have come already.
    pub(crate) fn new(groups_per_node: usize, packets: usize) -> Self {
        let mut rng = Rng::new(11);
        let members = memberships(groups_per_node, &mut rng);
        let mut engine = Lateral::new(NodeId(0), config(), 12);
        let mut streams = Vec::new();
        for (group, nodes) in members.iter().filter(|(_, nodes)| nodes.contains(&0)) {
            engine.join(Time(0), *group, settings()).expect("the settings are right");
            for node in nodes.iter().filter(|node| **node != 0) {
                let (group, node, kind) = (*group, NodeId(*node), ViewChangeKind::Joined);
                engine.handle_view(Time(0), &ViewChange { group, node, kind, version: 1 });
                streams.push((group, node));
            }
        }
        let mut senders: BTreeMap<(NodeId, GroupId), Lateral> = BTreeMap::new();
        let mut datagrams = (0..2 * packets).map(|_| {
            let (group, node) = streams[rng.below(streams.len())];
            let sender = senders.entry((node, group)).or_insert_with(|| sender(node, group));
            datagram(sender, group)
        });
        let warm_up: Vec<Vec<u8>> = datagrams.by_ref().take(packets).collect();
        let rest = datagrams.collect();
        let mut workload =
            Self { engine, datagrams: warm_up, out: Vec::with_capacity(2048), now: Time(0) };
        workload.run();
        workload.datagrams = rest;
        workload
    }

    /// Receives everything: accounts, delivers, fills all bins, sends what is full. Returns how
    /// many messages were delivered.
    pub(crate) fn run(&mut self) -> usize {
        let mut delivered = 0;
        for datagram in &self.datagrams {
            self.now.0 += 1_000_000;
            self.engine.handle_datagram(self.now, datagram);
            while self.engine.poll_transmit(&mut self.out).is_some() {
                self.out.clear();
            }
            while let Some(event) = self.engine.poll_event() {
                delivered += usize::from(matches!(event, Event::Message(_)));
            }
        }
        delivered
    }

    /// The counters of the engine.
    #[allow(dead_code, reason = "the instruction counts do not look at them")]
    pub(crate) fn counters(&self) -> lateral::Counters {
        self.engine.counters()
    }
}

/// Every node joins `groups_per_node` distinct random groups of `d n / s`.
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

/// As in the papers, but for the bound on what is buffered: a benchmark must not outgrow a cache
/// for want of a clock.
fn config() -> Config {
    Config { stream_start: StreamStart::FromFirst, buffer_bytes: 4 << 20, ..Config::default() }
}

fn settings() -> GroupSettings {
    GroupSettings { profile: Profile::TimeCritical(RateOfFire::new(8, 5)), name_check: 0 }
}

fn sender(node: NodeId, group: GroupId) -> Lateral {
    let mut engine = Lateral::new(node, config(), 13);
    engine.join(Time(0), group, settings()).expect("the settings are right");
    engine
}

fn datagram(sender: &mut Lateral, group: GroupId) -> Vec<u8> {
    let payload = bytes::Bytes::from_static(&[0xA5; PAYLOAD_BYTES]);
    sender.send(Time(0), group, payload, SendOptions::default()).expect("nobody holds back");
    let mut out = Vec::new();
    sender.poll_transmit(&mut out).expect("a message is one datagram");
    out
}

//! Fuzz target: arbitrary operations on two nodes that receive each other's datagrams. Datagrams
//! are lost, repeated, reordered, corrupted and forged. The nodes must not panic, and the
//! invariants of both must hold after each step.
#![no_main]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use carom_proto::lateral::Config;
use carom_proto::lateral::packet::symbol::{Arena, Symbol};
use carom_proto::lateral::packet::{Packet, WireId};
use carom_proto::membership::{Membership, MembershipEvent};
use carom_proto::node::{Node, NodeEvent};
use carom_proto::wire::{self, Datagram, HEADER_BYTES, Header, MAX_DATAGRAM_BYTES, Protocol};
use carom_proto::{
    Endpoint, Event, GroupId, GroupSettings, Incarnation, JoinError, NodeId, Origin, PacketId,
    Profile, RateOfFire, SendOptions, SeqNo, Time, Transmit, ViewChange, ViewChangeKind, Wakeup,
};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

/// Maximum number of datagrams in flight. If it is exceeded, the oldest is lost.
const MAX_ON_THE_WAY: usize = 64;
const MAX_BODY_BYTES: usize = MAX_DATAGRAM_BYTES - HEADER_BYTES;
/// Maximum number of datagrams or events after one operation. More indicate an endless loop.
const MAX_DRAINED: usize = 1_000_000;
const GROUPS: [&str; 3] = ["prices", "orders", "news"];
const ENDPOINT: Endpoint =
    Endpoint(SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 7400));

#[derive(Arbitrary, Debug)]
enum Operation {
    Join {
        group: u8,
        r: u8,
        c: u8,
    },
    Leave {
        group: u8,
    },
    Send {
        group: u8,
        bytes: u16,
        deadline_ms: Option<u16>,
    },
    Confirm {
        group: u8,
    },
    /// Delivers a datagram in flight, with some bytes changed and a valid checksum.
    Deliver {
        which: u8,
        stays: bool,
        damage: Vec<(u16, u8)>,
    },
    /// Delivers a datagram with a valid header and an arbitrary body.
    Forge {
        protocol: u8,
        kind: u8,
        flags: u8,
        group: u8,
        sender: u8,
        incarnation: u8,
        view: u32,
        body: Vec<u8>,
    },
    /// Delivers a lateral packet with a valid encoding and arbitrary values.
    Lateral {
        sender: u8,
        group: u8,
        packet: Forged,
    },
    Noise {
        datagram: Vec<u8>,
    },
    View {
        group: u8,
        node: u8,
        kind: u8,
    },
    Timeout,
    Wait {
        microseconds: u32,
    },
}

#[derive(Arbitrary, Debug)]
enum Forged {
    Data { seqno: u16, confirm: bool, sent_at: u64, deadline_ms: u8, bytes: u8 },
    Repair { ids: Vec<Id>, sum: Vec<u8> },
    Nak { ids: Vec<Id> },
    Retransmission { of: Id, bytes: u8 },
    HaveNot { ids: Vec<Id>, expired: bool },
    Heartbeat { next: u16, first: Option<u16>, confirm: bool },
    Ack { settled_to: u32, lost: u32 },
    Open,
}

/// A packet id with small values, so that it is often that of an existing packet.
#[derive(Arbitrary, Debug)]
struct Id {
    sender: u8,
    group: u8,
    seqno: u8,
}

fuzz_target!(|operations: Vec<(bool, Operation)>| {
    let mut world = World::new();
    for (second, operation) in operations {
        world.perform(usize::from(second), operation);
    }
});

struct World {
    now: Time,
    nodes: [Node; 2],
    accounts: [Account; 2],
    on_the_way: VecDeque<Vec<u8>>,
    view_version: u32,
}

/// Returns settings with bounds so small that a few operations reach them.
fn config() -> Config {
    Config {
        pending_repairs: 4,
        buffer_bytes: 8 << 10,
        max_gap: 512,
        window: 8,
        streams_per_group: 4,
        ..Config::default()
    }
}

impl World {
    fn new() -> Self {
        let node = |id| Node::new(NodeId(id), config(), Box::new(Scripted::default()), id);
        Self {
            now: Time(1_000_000_000),
            nodes: [node(1), node(2)],
            accounts: Default::default(),
            on_the_way: VecDeque::new(),
            view_version: 0,
        }
    }

    fn perform(&mut self, who: usize, operation: Operation) {
        let (now, node) = (self.now, &mut self.nodes[who]);
        match operation {
            Operation::Join { group, r, c } => {
                let profile = Profile::TimeCritical(RateOfFire::new(r, c));
                let _ = node.join(now, name(group), profile);
            }
            Operation::Leave { group } => {
                node.leave(now, id(group));
                self.drain(who);
                self.accounts[who].forget(id(group));
            }
            Operation::Send { group, bytes, deadline_ms } => {
                let deadline = deadline_ms.map(|ms| Duration::from_millis(ms.into()));
                let payload = Bytes::from(vec![0x5A; usize::from(bytes)]);
                let _ = node.send(now, id(group), payload, SendOptions { deadline, qos: None });
            }
            Operation::Confirm { group } => node.confirm(now, id(group)),
            Operation::Deliver { which, stays, damage } => self.deliver(who, which, stays, &damage),
            Operation::Forge { protocol, kind, flags, group, sender, incarnation, view, body } => {
                let protocol = [Protocol::Lateral, Protocol::Membership][usize::from(protocol % 2)];
                let sender = NodeId(sender.into());
                let (group, incarnation) = (id(group), Incarnation(incarnation.into()));
                let header = Header { protocol, kind, flags, group, sender, incarnation, view };
                let body = &body[..body.len().min(MAX_BODY_BYTES)];
                if let Ok(datagram) = Datagram::parse(&header.datagram(body)) {
                    node.handle_datagram(now, ENDPOINT, &datagram);
                }
            }
            Operation::Lateral { sender, group, packet } => {
                let datagram = packet.datagram(NodeId((sender % 8).into()), id(group));
                if let Ok(datagram) = Datagram::parse(&datagram) {
                    node.handle_datagram(now, ENDPOINT, &datagram);
                }
            }
            Operation::Noise { datagram } => {
                if let Ok(datagram) = Datagram::parse(&datagram) {
                    node.handle_datagram(now, ENDPOINT, &datagram);
                }
            }
            Operation::View { group, node, kind } => self.change_view(who, group, node, kind),
            Operation::Timeout => {
                self.now = node.poll_timeout().map_or(now, |wakeup| wakeup.at.max(now));
                self.nodes[who].handle_timeout(self.now);
            }
            Operation::Wait { microseconds } => {
                self.now = now + Duration::from_micros(microseconds.into());
                self.nodes[who].handle_timeout(self.now);
            }
        }
        self.drain(who);
    }

    fn deliver(&mut self, who: usize, which: u8, stays: bool, damage: &[(u16, u8)]) {
        if self.on_the_way.is_empty() {
            return;
        }
        let place = usize::from(which) % self.on_the_way.len();
        let mut datagram = self.on_the_way[place].clone();
        if !stays {
            self.on_the_way.remove(place);
        }
        for (at, change) in damage {
            let at = usize::from(*at) % datagram.len();
            datagram[at] ^= change;
        }
        if !damage.is_empty() {
            wire::seal(&mut datagram, 0);
        }
        if let Ok(datagram) = Datagram::parse(&datagram) {
            self.nodes[who].handle_datagram(self.now, ENDPOINT, &datagram);
        }
    }

    /// Changes a view. A node is never in its own view, which contains the other node and unknown
    /// nodes.
    fn change_view(&mut self, who: usize, group: u8, node: u8, kind: u8) {
        let other = NodeId(u64::from(node % 8) + 1);
        if other == self.nodes[who].id() {
            return;
        }
        self.view_version += 1;
        let (group, view) = (id(group), self.view_version);
        let header = Header {
            protocol: Protocol::Membership,
            kind: kind % 3,
            flags: 0xFF,
            group,
            sender: other,
            incarnation: Incarnation::default(),
            view,
        };
        if let Ok(datagram) = Datagram::parse(&header.datagram(&[])) {
            self.nodes[who].handle_datagram(self.now, SCRIPT, &datagram);
        }
    }

    fn drain(&mut self, who: usize) {
        let node = &mut self.nodes[who];
        let mut datagram = Vec::new();
        for _ in 0..MAX_DRAINED {
            let Some(_) = node.poll_transmit(&mut datagram) else { break };
            assert!(Datagram::parse(&datagram).is_ok(), "a node sent an invalid datagram");
            self.on_the_way.push_back(core::mem::take(&mut datagram));
        }
        assert!(node.poll_transmit(&mut datagram).is_none(), "too many datagrams");
        while self.on_the_way.len() > MAX_ON_THE_WAY {
            self.on_the_way.pop_front();
        }
        let account = &mut self.accounts[who];
        let events = core::iter::from_fn(|| node.poll_event()).take(MAX_DRAINED);
        let events = events.map(|event| account.enter(&event)).count();
        assert!(events < MAX_DRAINED, "too many events");
        node.check();
    }
}

/// The deliveries and losses that a node has reported. Each message must be reported once.
#[derive(Default)]
struct Account {
    streams: BTreeMap<(GroupId, NodeId), Settled>,
}

#[derive(Default)]
struct Settled {
    /// Last sequence number reported, extended beyond 32 bits.
    last: i64,
    delivered: BTreeSet<i64>,
    lost: Vec<(i64, i64)>,
}

impl Account {
    fn enter(&mut self, event: &NodeEvent) {
        let (group, sender, first, count) = match event {
            NodeEvent::Group(Event::Message(it)) => (it.group, it.sender, it.seqno, None),
            NodeEvent::Group(Event::Lost(it)) => (it.group, it.sender, it.first, Some(it.count())),
            _ => return,
        };
        let stream = self.streams.entry((group, sender)).or_default();
        let first = stream.last + i64::from(first.distance_from(SeqNo(stream.last as u32)));
        let last = first + i64::from(count.unwrap_or(1)) - 1;
        let again = stream.delivered.range(first..=last).next();
        assert_eq!(again, None, "{sender:?}: {first} to {last}, but it was delivered");
        let mut lost = stream.lost.iter();
        let again = lost.find(|(from, to)| *from <= last && first <= *to);
        assert_eq!(again, None, "{sender:?}: {first} to {last}, but it was reported as lost");
        match count {
            None => _ = stream.delivered.insert(first),
            Some(_) => stream.lost.push((first, last)),
        }
        stream.last = last;
    }

    fn forget(&mut self, group: GroupId) {
        self.streams.retain(|(of, _), _| *of != group);
    }
}

impl Forged {
    fn datagram(&self, sender: NodeId, group: GroupId) -> Vec<u8> {
        let wire_ids = |ids: &[Id]| -> Vec<WireId> {
            ids.iter().take(32).map(|id| id.packet_id().into()).collect()
        };
        let symbol = |sent_at: u64, deadline_ms: u8, bytes: u8| {
            let deadline = Some(Duration::from_millis(deadline_ms.into())).filter(|d| !d.is_zero());
            let payload = vec![0xA5; bytes.into()];
            Symbol::of_message(&mut Arena::default(), Time(sent_at), deadline, &payload)
        };
        let mut out = Vec::new();
        let mut encode = |packet: Packet<'_>| packet.encode(sender, group, 1, &mut out);
        match self {
            Self::Data { seqno, confirm, sent_at, deadline_ms, bytes } => {
                let (seqno, confirm) = (SeqNo((*seqno).into()), *confirm);
                let symbol = symbol(*sent_at, *deadline_ms, *bytes);
                encode(Packet::Data { seqno, confirm, symbol: symbol.bytes() });
            }
            Self::Repair { ids, sum } => {
                let sum = &sum[..sum.len().min(2_000)];
                encode(Packet::Repair { ids: &wire_ids(ids), sum });
            }
            Self::Nak { ids } => encode(Packet::Nak { cookie: 0, ids: &wire_ids(ids) }),
            Self::Retransmission { of, bytes } => {
                let PacketId { sender: origin, seqno, .. } = of.packet_id();
                let symbol = symbol(0, 0, *bytes);
                encode(Packet::Retransmission { origin, seqno, symbol: symbol.bytes() });
            }
            Self::HaveNot { ids, expired } => {
                encode(Packet::HaveNot { ids: &wire_ids(ids), expired: *expired });
            }
            Self::Heartbeat { next, first, confirm } => {
                let (next, first) = (SeqNo((*next).into()), first.map(|first| SeqNo(first.into())));
                encode(Packet::Heartbeat { next, first, nonce: 0, confirm: *confirm });
            }
            Self::Ack { settled_to, lost } => {
                let to = Origin::from(NodeId(u64::from(settled_to % 2) + 1));
                let settled_to = SeqNo(*settled_to);
                encode(Packet::Ack { to, settled_to, lost: *lost });
            }
            Self::Open => encode(Packet::Open { nonce: 0 }),
        }
        out
    }
}

impl Id {
    fn packet_id(&self) -> PacketId {
        PacketId {
            sender: NodeId(u64::from(self.sender % 8) + 1),
            group: id(self.group),
            seqno: SeqNo(self.seqno.into()),
        }
    }
}

/// Source of the script's datagrams. Forged datagrams have another source.
const SCRIPT: Endpoint = Endpoint(SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1));

fn name(group: u8) -> &'static str {
    GROUPS[usize::from(group) % GROUPS.len()]
}

fn id(group: u8) -> GroupId {
    GroupId::of_name(name(group))
}

#[derive(Default)]
struct Scripted(VecDeque<MembershipEvent>);

impl Membership for Scripted {
    fn join(&mut self, _: Time, _: GroupId, _: GroupSettings) -> Result<(), JoinError> {
        Ok(())
    }

    fn leave(&mut self, _: Time, _: GroupId) {}

    fn shut_down(&mut self, _: Time) {}

    fn handle_datagram(&mut self, _: Time, source: Endpoint, datagram: &Datagram<'_>) {
        let header = datagram.header();
        if datagram.body().is_err() {
            return;
        }
        if source == SCRIPT {
            let kinds = [ViewChangeKind::Joined, ViewChangeKind::Left, ViewChangeKind::Failed];
            let kind = kinds[usize::from(header.kind) % kinds.len()];
            let (group, node, version) = (header.group, header.sender, header.view);
            self.0.push_back(MembershipEvent::View(ViewChange { group, node, kind, version }));
        }
    }

    fn handle_timeout(&mut self, _: Time) {}

    fn poll_transmit(&mut self, _: &mut Vec<u8>) -> Option<Transmit> {
        None
    }

    fn poll_event(&mut self) -> Option<MembershipEvent> {
        self.0.pop_front()
    }

    fn poll_timeout(&self) -> Option<Wakeup> {
        None
    }

    fn nodes(&self) -> Vec<(NodeId, Endpoint)> {
        Vec::new()
    }

    fn is_settled(&self) -> bool {
        true
    }

    fn stats(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    fn check(&self) {}
}

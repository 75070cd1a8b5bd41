//! Packets of an ordered group that somebody sends in the names of its members, from an address of
//! its own: nothing at the members changes, and nothing is sent to anybody for it.

use std::collections::VecDeque;

use carom_proto::lateral;
use carom_proto::membership::static_list::StaticMembership;
use carom_proto::node::{Node, NodeEvent};
use carom_proto::rmp::packet::{DataPacket, Nack, NewList, Packet, Position};
use carom_proto::rmp::{
    Data, Epoch, ListChange, ListChangeKind, Partition, Process, Qos, RingNews, RingView, Round,
    Run, Timestamp, What,
};
use carom_proto::wire::{HEADER_BYTES, Header, Protocol, seal};
use carom_proto::*;

/// Nodes 1 to 4 on a static list, and the network between them.
struct Net {
    now: Time,
    group: GroupId,
    nodes: Vec<Node>,
    /// What each was given, and how often its ring was not as it should be.
    given: Vec<Vec<Vec<u8>>>,
    troubles: usize,
    /// Datagrams on their way, with the numbers of sender and receiver.
    in_flight: VecDeque<(usize, usize, Vec<u8>)>,
    seen: Vec<Vec<u8>>,
    bytes_sent: usize,
}

fn endpoint(number: usize) -> Endpoint {
    Endpoint(std::net::SocketAddr::from(([127, 0, 0, 1], 100 + number as u16)))
}

fn origin(number: usize) -> Origin {
    Origin { node: NodeId(number as u64 + 1), incarnation: Incarnation(7 << 45) }
}

impl Net {
    /// All are in one ring that has ordered some messages.
    fn new() -> Self {
        let list: Vec<_> = (0..MEMBERS).map(|it| (origin(it).node, endpoint(it))).collect();
        let nodes = (0..MEMBERS).map(|number| {
            let membership = Box::new(StaticMembership::new(origin(number), list.clone()));
            Node::new(origin(number), lateral::Config::default(), membership, number as u64)
        });
        let mut net = Self {
            now: Time(1_000_000_000),
            group: GroupId::of_name("ring"),
            nodes: nodes.collect(),
            given: vec![Vec::new(); MEMBERS],
            troubles: 0,
            in_flight: VecDeque::new(),
            seen: Vec::new(),
            bytes_sent: 0,
        };
        for number in 0..MEMBERS {
            let joined =
                net.nodes[number].join(net.now, "ring", Profile::Ordered(Partition::Majority));
            assert_eq!(joined, Ok(net.group));
            net.drain(number);
        }
        net.run(3000);
        (0..MEMBERS).for_each(|number| net.send(number));
        net.run(1000);
        assert_eq!(net.view(0).len(), MEMBERS);
        assert!(net.given.iter().all(|given| given.len() == MEMBERS));
        net.troubles = 0;
        net
    }

    fn view(&self, number: usize) -> RingView {
        self.nodes[number].ordered().view(self.group).expect("it is in a ring").clone()
    }

    fn send(&mut self, number: usize) {
        let payload = vec![number as u8; 20 + self.given[number].len()];
        let options = SendOptions { qos: Some(Qos::MajorityResilient), deadline: None };
        self.nodes[number].send(self.now, self.group, payload.into(), options).expect("it is in");
        self.drain(number);
    }

    /// A datagram that the attacker sends reaches all, who send nothing for it.
    fn attack(&mut self, datagram: &[u8]) {
        for number in 0..MEMBERS {
            let before = self.bytes_sent;
            self.nodes[number].handle_datagram(self.now, endpoint(ATTACKER), datagram);
            self.drain(number);
            assert!(self.bytes_sent - before <= 2 * datagram.len(), "{:?}", packet(datagram));
        }
    }

    fn forge(&mut self, origin: Origin, packet: &Packet) {
        let mut datagram = Vec::new();
        packet.encode(&mut datagram, self.group, origin, self.view(0).epoch.version);
        self.attack(&datagram);
    }

    fn run(&mut self, ms: u64) {
        for _ in 0..ms {
            self.now = self.now + core::time::Duration::from_millis(1);
            for _ in 0..self.in_flight.len() {
                let Some((from, to, datagram)) = self.in_flight.pop_front() else { break };
                self.nodes[to].handle_datagram(self.now, endpoint(from), &datagram);
                self.drain(to);
            }
            for number in 0..MEMBERS {
                if self.nodes[number].poll_timeout().is_some_and(|it| it.at <= self.now) {
                    self.nodes[number].handle_timeout(self.now);
                    self.drain(number);
                }
            }
        }
    }

    fn drain(&mut self, number: usize) {
        let mut datagram = Vec::new();
        while let Some(transmit) = self.nodes[number].poll_transmit(&mut datagram) {
            self.bytes_sent += datagram.len();
            for to in (0..MEMBERS).filter(|to| *to != number) {
                if match transmit.destination {
                    Destination::Node(node) => node == origin(to).node,
                    _ => true,
                } {
                    self.in_flight.push_back((number, to, datagram.clone()));
                }
            }
            self.seen.push(core::mem::take(&mut datagram));
        }
        while let Some(event) = self.nodes[number].poll_event() {
            match event {
                NodeEvent::Group(Event::Message(message)) => {
                    self.given[number].push(message.payload.to_vec());
                }
                NodeEvent::Group(Event::Ring(event)) => {
                    let is_trouble = !matches!(event.news, RingNews::Stable { .. });
                    self.troubles += usize::from(is_trouble);
                }
                _ => {}
            }
        }
    }

    /// All go on as if nothing had been.
    fn assert_unharmed(&mut self) {
        let (view, given) = (self.view(0), self.given[0].len());
        self.run(3000);
        (0..MEMBERS).for_each(|number| self.send(number));
        self.run(1000);
        for number in 0..MEMBERS {
            assert_eq!(self.view(number), view);
            assert_eq!(self.given[number].len(), given + MEMBERS);
            assert_eq!(self.given[number], self.given[0]);
        }
        assert_eq!(self.troubles, 0, "a view changed, or something else was told");
    }
}

fn packet(datagram: &[u8]) -> Option<Packet> {
    let (header, body) = Header::decode(datagram).ok()?;
    Packet::decode(&header, body).ok()
}

/// What somebody who hears the group's multicast can say in the name of its second member.
fn forgeries(view: &RingView) -> Vec<(&'static str, Packet)> {
    let epoch = view.epoch;
    let [first, second] = [1, 2].map(|node| view.process_of(NodeId(node)).expect("it is in"));
    let data = Data {
        message: SeqNo(2),
        qos: Qos::TotallyOrdered,
        handler: None,
        is_call: false,
        is_first: true,
        is_last: true,
        may_wait: false,
        payload: vec![66; 30].into(),
    };
    let data = |seqno| {
        Packet::Data(DataPacket { source: second, seqno: SeqNo(seqno), data: data.clone() })
    };
    let leave = ListChange { process: second, request: 1, kind: ListChangeKind::Leave };
    let ack = |at: u64, site: Process, next: Process, count: u16| {
        let runs = vec![Run { source: second, first: SeqNo(2), count }];
        let what = What::Order(if count == 0 { Vec::new() } else { runs });
        Packet::Ack { epoch, round: Round { at: Timestamp(at), site, next, what } }
    };
    let ballot = Epoch { version: u32::MAX, creator: second };
    let position = Position { next: Timestamp(1), is_whole: true, received: Vec::new() };
    let start = Packet::RecoveryStart {
        epoch,
        ballot,
        position: position.clone(),
        refuted: Vec::new(),
        released: Vec::new(),
    };
    let mut packets = vec![
        ("leave", Packet::ListChangeRequest { epoch: Some(epoch), change: leave }),
        ("abort", Packet::RecoveryAbort { ballot, seen: ballot }),
        (
            "vote",
            Packet::RecoveryVote {
                epoch,
                ballot,
                position: position.clone(),
                accepted: Vec::new(),
            },
        ),
        ("start", start),
    ];
    packets.extend((2..7).map(|seqno| ("data", data(seqno))));
    for at in 1..60 {
        packets.push(("null ack", ack(at, second, first, 0)));
        packets.push(("split", ack(at, first, second, 1 + (at % 3) as u16)));
        let round =
            Round { at: Timestamp(at), site: second, next: first, what: What::List(vec![leave]) };
        packets.push(("leave list", Packet::NewList(NewList::Change { epoch, round })));
    }
    packets.push(("far ack", ack(1 << 40, second, first, 4)));
    let runs = vec![Run { source: first, first: SeqNo(1), count: 64 }];
    let (from, to) = (Timestamp(1), Timestamp::MAX);
    let asked = Some(NodeId(1));
    packets.push(("nack", Packet::Nack(Nack { epoch, asked, from, to, runs })));
    packets
}

#[test]
fn packets_in_a_members_name_from_elsewhere_change_nothing() {
    let names: std::collections::BTreeSet<&str> =
        forgeries(&Net::new().view(0)).iter().map(|(name, _)| *name).collect();
    for name in names {
        let mut net = Net::new();
        for (_, packet) in forgeries(&net.view(0)).iter().filter(|(it, _)| *it == name) {
            net.forge(origin(1), packet);
        }
        net.assert_unharmed();
    }
}

#[test]
fn what_strangers_repeat_in_their_own_names_changes_nothing() {
    let stranger = Origin { node: NodeId(99), incarnation: Incarnation(9 << 45) };
    for name in ["data", "null ack", "split", "leave list", "far ack", "nack", "abort", "vote"] {
        let mut net = Net::new();
        for (_, packet) in forgeries(&net.view(0)).iter().filter(|(it, _)| *it == name) {
            // Whoever asks is told what the ring is, which is longer than the question.
            if name != "nack" {
                net.forge(stranger, packet);
            }
        }
        net.assert_unharmed();
    }
}

#[test]
fn mutations_and_replays_from_elsewhere_change_nothing() {
    let mut net = Net::new();
    let mut rng = Rng::new(5);
    let seen: Vec<Vec<u8>> = net.seen.clone();
    for turn in 0..20_000 {
        let mut datagram = seen[rng.below(seen.len())].clone();
        let is_ordered =
            Header::peek(&datagram).is_some_and(|peek| peek.protocol == Protocol::Ordered);
        if !is_ordered {
            continue;
        }
        if turn % 8 != 0 {
            // The header names group and sender; the rest is anything.
            let at = HEADER_BYTES;
            let at = at + rng.below(datagram.len().saturating_sub(at).max(1));
            if let Some(byte) = datagram.get_mut(at) {
                *byte = [0, 255, *byte ^ 1, rng.next_u64() as u8][rng.below(4)];
            }
            seal(&mut datagram, 0);
        }
        net.attack(&datagram);
    }
    net.assert_unharmed();
}

const MEMBERS: usize = 4;
/// Nobody's number.
const ATTACKER: usize = 77;

//! Nodes on a static list, and the network between them.

use std::collections::VecDeque;

use carom_proto::lateral;
use carom_proto::membership::static_list::StaticMembership;
use carom_proto::node::{Node, NodeEvent};
use carom_proto::ring::RingNews;
use carom_proto::wire::Datagram;
use carom_proto::*;

pub(crate) struct Net {
    pub(crate) now: Time,
    pub(crate) group: GroupId,
    pub(crate) nodes: Vec<Node>,
    pub(crate) given: Vec<Vec<(NodeId, Vec<u8>)>>,
    pub(crate) lost: Vec<Lost>,
    /// Number of ring events other than `RingNews::Stable`.
    pub(crate) troubles: usize,
    /// Nodes that have reported that they are out of the group that they left.
    pub(crate) outs: Vec<usize>,
    pub(crate) loss: f64,
    rng: Rng,
    in_flight: VecDeque<(usize, usize, Vec<u8>)>,
    pub(crate) seen: Vec<Vec<u8>>,
    pub(crate) bytes_sent: usize,
}

pub(crate) fn origin(number: usize) -> Origin {
    Origin { node: NodeId(number as u64 + 1), incarnation: Incarnation(7 << 45) }
}

fn endpoint(number: usize) -> Endpoint {
    Endpoint(std::net::SocketAddr::from(([127, 0, 0, 1], 100 + number as u16)))
}

impl Net {
    pub(crate) fn new(members: usize, profile: Profile) -> Self {
        let list: Vec<_> = (0..members).map(|it| (origin(it).node, endpoint(it))).collect();
        let nodes = (0..members).map(|number| {
            let membership = Box::new(StaticMembership::new(origin(number), list.clone()));
            Node::new(origin(number), lateral::Config::default(), membership, number as u64)
        });
        let mut net = Self {
            now: Time(1_000_000_000),
            group: GroupId::of_name("group"),
            nodes: nodes.collect(),
            given: vec![Vec::new(); members],
            lost: Vec::new(),
            troubles: 0,
            outs: Vec::new(),
            loss: 0.0,
            rng: Rng::new(3),
            in_flight: VecDeque::new(),
            seen: Vec::new(),
            bytes_sent: 0,
        };
        for number in 0..members {
            let joined = net.nodes[number].join(net.now, "group", profile);
            assert_eq!(joined, Ok(net.group));
            net.drain(number);
        }
        net
    }

    pub(crate) fn send(&mut self, number: usize, payload: Vec<u8>, options: SendOptions) {
        self.nodes[number].send(self.now, self.group, payload.into(), options).expect("it is in");
        self.drain(number);
    }

    /// Delivers a datagram of the attacker to all nodes. Returns the number of bytes that each node
    /// sends in return.
    pub(crate) fn attack(&mut self, datagram: &[u8]) -> [usize; MEMBERS] {
        core::array::from_fn(|number| {
            let before = self.bytes_sent;
            if let Ok(datagram) = Datagram::parse(datagram) {
                self.nodes[number].handle_datagram(self.now, endpoint(ATTACKER), &datagram);
                self.drain(number);
            }
            self.bytes_sent - before
        })
    }

    pub(crate) fn run(&mut self, ms: u64) {
        for _ in 0..ms {
            self.now = self.now + core::time::Duration::from_millis(1);
            for _ in 0..self.in_flight.len() {
                let Some((from, to, datagram)) = self.in_flight.pop_front() else { break };
                if self.rng.fraction() >= self.loss {
                    let datagram = Datagram::parse(&datagram).expect("a datagram");
                    self.nodes[to].handle_datagram(self.now, endpoint(from), &datagram);
                    self.drain(to);
                }
            }
            for number in 0..self.nodes.len() {
                if self.nodes[number].poll_timeout().is_some_and(|it| it.at <= self.now) {
                    self.nodes[number].handle_timeout(self.now);
                    self.drain(number);
                }
            }
        }
    }

    pub(crate) fn drain(&mut self, number: usize) {
        let mut datagram = Vec::new();
        while let Some(transmit) = self.nodes[number].poll_transmit(&mut datagram) {
            self.bytes_sent += datagram.len();
            for to in (0..self.nodes.len()).filter(|to| *to != number) {
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
                    self.given[number].push((message.sender, message.payload.to_vec()));
                }
                NodeEvent::Group(Event::Lost(lost)) => self.lost.push(lost),
                NodeEvent::Group(Event::Ring(event)) => {
                    let is_trouble = !matches!(event.news, RingNews::Stable { .. });
                    self.troubles += usize::from(is_trouble);
                }
                NodeEvent::Out(_) => self.outs.push(number),
                _ => {}
            }
        }
    }

    pub(crate) fn leave(&mut self, number: usize) {
        self.nodes[number].leave(self.now, self.group);
        self.drain(number);
    }
}

pub(crate) const MEMBERS: usize = 4;
const ATTACKER: usize = 77;

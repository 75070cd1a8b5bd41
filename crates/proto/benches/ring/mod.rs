//! A token ring whose first member sends 1 KiB messages to all.
//!
//! Only the engines are measured. Datagrams arrive in the order of sending, 10 us apart.

use std::collections::VecDeque;
use std::time::Duration;

use carom_proto::ring::{Qos, Quorum, RingView};
use carom_proto::rmp::{Config, Rmp};
use carom_proto::wire::Datagram;
use carom_proto::*;

const PAYLOAD_BYTES: usize = 1024;
const GROUP: GroupId = GroupId(7);
const TICK: Duration = Duration::from_micros(10);

pub(crate) struct Ring {
    engines: Vec<Rmp>,
    on_the_way: VecDeque<(usize, Destination, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
    now: Time,
    delivered: usize,
    payload: bytes::Bytes,
}

impl Ring {
    pub(crate) fn new(members: usize, window_bytes: usize, warm_up: usize) -> Self {
        let config = Config { window_bytes, ..Config::default() };
        let engine = |number: usize| Rmp::new(NodeId(number as u64 + 1), config.clone(), 3);
        let mut ring = Self {
            engines: (0..members).map(engine).collect(),
            on_the_way: VecDeque::new(),
            spare: Vec::new(),
            now: Time(1_000_000_000),
            delivered: 0,
            payload: vec![0x5A; PAYLOAD_BYTES].into(),
        };
        for number in 0..members {
            let profile = Profile::Ordered(Quorum::Majority);
            let settings = GroupSettings { profile, name_check: 0 };
            ring.engines[number].join(ring.now, GROUP, settings).expect("it is not in the group");
            ring.drain(number);
            while ring.engines[number].view(GROUP).map_or(0, RingView::len) <= number {
                ring.step();
            }
        }
        ring.run(warm_up, Qos::TotallyOrdered);
        ring
    }

    pub(crate) fn run(&mut self, messages: usize, qos: Qos) -> usize {
        let options = SendOptions { qos: Some(qos), ..SendOptions::default() };
        let before = self.delivered;
        for _ in 0..messages {
            let payload = self.payload.clone();
            self.engines[0].send(self.now, GROUP, payload, options).expect("there is room");
        }
        self.drain(0);
        while self.delivered < before + messages * self.engines.len() {
            self.step();
        }
        self.delivered - before
    }

    fn step(&mut self) {
        self.now = self.now + TICK;
        if let Some((from, destination, bytes)) = self.on_the_way.pop_front() {
            let datagram = Datagram::parse(&bytes).expect("a datagram");
            for to in 0..self.engines.len() {
                let is_meant = match destination {
                    Destination::Node(node) => node.0 == to as u64 + 1,
                    _ => to != from,
                };
                if is_meant {
                    self.engines[to].handle_datagram(self.now, &datagram);
                    self.drain(to);
                }
            }
            self.spare.push(bytes);
        } else if let Some(at) = self.due() {
            self.now = self.now.max(at);
        }
        for number in 0..self.engines.len() {
            let due = self.engines[number].poll_timeout();
            if due.is_some_and(|wakeup| wakeup.at <= self.now) {
                self.engines[number].handle_timeout(self.now);
                self.drain(number);
            }
        }
    }

    fn due(&self) -> Option<Time> {
        let timers = self.engines.iter().filter_map(|engine| engine.poll_timeout());
        timers.map(|wakeup| wakeup.at).min()
    }

    fn drain(&mut self, number: usize) {
        let engine = &mut self.engines[number];
        loop {
            let mut datagram = self.spare.pop().unwrap_or_default();
            datagram.clear();
            let Some(transmit) = engine.poll_transmit(&mut datagram) else {
                self.spare.push(datagram);
                break;
            };
            self.on_the_way.push_back((number, transmit.destination, datagram));
        }
        while let Some(event) = engine.poll_event() {
            self.delivered += usize::from(matches!(event, Event::Message(_)));
        }
    }
}

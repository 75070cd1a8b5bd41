//! Fuzz target: arbitrary operations on two engines of each baseline protocol, and arbitrary
//! datagrams. The engines must not panic, their invariants must hold after each step, and a decoded
//! packet must re-encode to the same bytes.
#![no_main]

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use carom_baselines::domain::{DomainConfig, Hierarchy};
use carom_baselines::guest::GuestPacket;
use carom_baselines::{StreamConfig, ack, bimodal, fec, lbrm, rmtp, srm, tmtp};
use carom_proto::wire::{self, Datagram, HEADER_BYTES, Header, Protocol};
use carom_proto::{
    Engine, GroupId, GroupSettings, Incarnation, NodeId, Profile, SendOptions, Time, ViewChange,
    ViewChangeKind,
};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

const GROUP: GroupId = GroupId(0xCA);
/// Maximum number of datagrams in flight. If it is exceeded, the oldest is lost.
const MAX_ON_THE_WAY: usize = 64;
/// Maximum number of datagrams or events after one operation. More indicate an endless loop.
const MAX_DRAINED: usize = 1_000_000;

#[derive(Arbitrary, Debug)]
enum Operation {
    Leave,
    Send { bytes: u8, deadline_ms: Option<u8> },
    Confirm,
    Deliver { which: u8, stays: bool, damage: Vec<(u8, u8)> },
    Forge { kind: u8, sender: u8, body: Vec<u8> },
    Noise { datagram: Vec<u8> },
    View { node: u8, kind: u8 },
    Timeout,
    Wait { microseconds: u32 },
}

#[derive(Arbitrary, Debug)]
struct Step {
    protocol: u8,
    second: bool,
    operation: Operation,
}

fuzz_target!(|steps: Vec<Step>| {
    let mut now = Time(1_000_000_000);
    let mut pairs = [
        Pair::srm(now),
        Pair::bimodal(now),
        Pair::fec(now),
        Pair::ack(now),
        Pair::rmtp(now),
        Pair::lbrm(now),
        Pair::tmtp(now),
    ];
    for Step { protocol, second, operation } in steps {
        if let Operation::Wait { microseconds } = operation {
            now = now + Duration::from_micros(u64::from(microseconds));
        }
        let which = usize::from(protocol) % pairs.len();
        let pair = &mut pairs[which];
        pair.perform(now, usize::from(second), operation);
    }
});

struct Pair {
    engines: [Box<dyn Engine>; 2],
    on_the_way: VecDeque<Vec<u8>>,
    view_version: u32,
    encode_again: fn(&[u8]) -> Option<Vec<u8>>,
}

fn again<'a, P: GuestPacket<'a>>(datagram: &'a [u8]) -> Option<Vec<u8>> {
    let (header, packet) = P::decode(datagram).ok()?;
    let mut out = Vec::new();
    packet.encode(header.origin(), header.group, header.view, &mut out);
    Some(out)
}

fn domains() -> DomainConfig {
    let hierarchy = Hierarchy::by_id(1).expect("at least one domain");
    let (streams, retain_bytes) = (streams(), 2000);
    DomainConfig { hierarchy, streams, retain_bytes, ..DomainConfig::default() }
}

fn streams() -> StreamConfig {
    StreamConfig { max_missing: 8, max_streams: 3, ..StreamConfig::default() }
}

// The bounds of these settings are so small that a few operations reach them.
impl Pair {
    fn srm(now: Time) -> Self {
        let config =
            srm::Config { streams: streams(), retain_bytes: 2000, ..srm::Config::ns2_fixed() };
        let make = |id, seed| Box::new(srm::Srm::new(id, config.clone(), seed)) as _;
        Self::new(now, make, |datagram| again::<srm::packet::Packet<'_>>(datagram))
    }

    fn bimodal(now: Time) -> Self {
        let config = bimodal::Config {
            streams: StreamConfig { path_mtu: 400, ..streams() },
            max_history: 8,
            ..bimodal::Config::default()
        };
        let make = |id, seed| Box::new(bimodal::Bimodal::new(id, config.clone(), seed)) as _;
        Self::new(now, make, |datagram| again::<bimodal::packet::Packet<'_>>(datagram))
    }

    fn fec(now: Time) -> Self {
        let config = fec::Config {
            r: 3,
            c: 2,
            retain_bytes: 2000,
            streams: streams(),
            max_sets: 2,
            ..fec::Config::default()
        };
        let make = |id, seed| Box::new(fec::SenderFec::new(id, config.clone(), seed)) as _;
        Self::new(now, make, |datagram| again::<fec::packet::Packet<'_>>(datagram))
    }

    fn ack(now: Time) -> Self {
        let config = ack::Config {
            max_retransmissions: 2,
            window: 4,
            streams: streams(),
            ..ack::Config::default()
        };
        let make = |id, seed| Box::new(ack::AckTimeout::new(id, config.clone(), seed)) as _;
        Self::new(now, make, |datagram| again::<ack::packet::Packet<'_>>(datagram))
    }

    fn tmtp(now: Time) -> Self {
        let config = tmtp::Config { domains: domains(), window: 4, ..tmtp::Config::default() };
        let make = |id, seed| Box::new(tmtp::Tmtp::new(id, config.clone(), seed)) as _;
        Self::new(now, make, |datagram| again::<tmtp::packet::Packet<'_>>(datagram))
    }

    fn lbrm(now: Time) -> Self {
        let config = lbrm::Config { domains: domains(), ..lbrm::Config::default() };
        let make = |id, seed| Box::new(lbrm::Lbrm::new(id, config.clone(), seed)) as _;
        Self::new(now, make, |datagram| again::<lbrm::packet::Packet<'_>>(datagram))
    }

    fn rmtp(now: Time) -> Self {
        let config = rmtp::Config { domains: domains(), window: 4, ..rmtp::Config::default() };
        let make = |id, seed| Box::new(rmtp::Rmtp::new(id, config.clone(), seed)) as _;
        Self::new(now, make, |datagram| again::<rmtp::packet::Packet<'_>>(datagram))
    }

    fn new(
        now: Time,
        make: impl Fn(NodeId, u64) -> Box<dyn Engine>,
        encode_again: fn(&[u8]) -> Option<Vec<u8>>,
    ) -> Self {
        let engines = [make(NodeId(1), 1), make(NodeId(2), 2)];
        let mut pair = Self { engines, on_the_way: VecDeque::new(), view_version: 0, encode_again };
        for which in 0..2 {
            pair.join(now, which);
        }
        pair
    }

    fn join(&mut self, now: Time, which: usize) {
        let settings = GroupSettings::new("prices", Profile::Guest);
        self.engines[which].join(now, GROUP, settings).expect("it is not in the group");
        self.view(now, which, 2 - which as u64, ViewChangeKind::Joined);
    }

    fn view(&mut self, now: Time, which: usize, node: u64, kind: ViewChangeKind) {
        self.view_version += 1;
        let (node, version) = (NodeId(node), self.view_version);
        let change = ViewChange { group: GROUP, node, kind, version };
        self.engines[which].handle_view(now, &change);
    }

    fn perform(&mut self, now: Time, which: usize, operation: Operation) {
        match operation {
            Operation::Leave => {
                self.engines[which].leave(now, GROUP);
                self.join(now, which);
            }
            Operation::Send { bytes, deadline_ms } => {
                let deadline = deadline_ms.map(|it| Duration::from_millis(u64::from(it)));
                let payload = Bytes::from(vec![bytes; usize::from(bytes)]);
                let options = SendOptions { deadline, qos: None };
                let _ = self.engines[which].send(now, GROUP, payload, options);
            }
            Operation::Confirm => self.engines[which].confirm(now, GROUP),
            Operation::Deliver { which: place, stays, damage } => {
                let place = usize::from(place) % self.on_the_way.len().max(1);
                let Some(mut datagram) = self.on_the_way.get(place).cloned() else { return };
                if !stays {
                    self.on_the_way.remove(place);
                }
                let is_damaged = !damage.is_empty();
                for (at, bits) in damage {
                    // The common header is unchanged, because otherwise little could be decoded.
                    let at = HEADER_BYTES + usize::from(at);
                    if let Some(byte) = datagram.get_mut(at) {
                        *byte ^= bits;
                    }
                }
                if is_damaged {
                    wire::seal(&mut datagram, 0);
                }
                self.hear(now, which, &datagram);
            }
            Operation::Forge { kind, sender, body } => {
                let (protocol, sender) = (Protocol::Guest, NodeId(u64::from(sender)));
                let incarnation = Incarnation::default();
                let group = GROUP;
                let header =
                    Header { protocol, kind, flags: 0, group, sender, incarnation, view: 1 };
                self.hear(now, which, &header.datagram(&body));
            }
            Operation::Noise { datagram } => self.hear(now, which, &datagram),
            Operation::View { node, kind } => {
                let kinds = [ViewChangeKind::Joined, ViewChangeKind::Left, ViewChangeKind::Failed];
                self.view(now, which, u64::from(node), kinds[usize::from(kind) % 3]);
            }
            Operation::Timeout | Operation::Wait { .. } => self.engines[which].handle_timeout(now),
        }
        self.drain(which);
    }

    fn hear(&mut self, now: Time, which: usize, datagram: &[u8]) {
        if let Some(again) = (self.encode_again)(datagram) {
            assert_eq!(again[HEADER_BYTES..], datagram[HEADER_BYTES..], "the packet has changed");
        }
        if let Ok(datagram) = Datagram::parse(datagram) {
            self.engines[which].handle_datagram(now, &datagram);
        }
    }

    fn drain(&mut self, which: usize) {
        let engine = &mut self.engines[which];
        let mut events = 0;
        while engine.poll_event().is_some() {
            events += 1;
            assert!(events < MAX_DRAINED, "too many events");
        }
        for sent in 0.. {
            let mut datagram = Vec::new();
            if engine.poll_transmit(&mut datagram).is_none() {
                break;
            }
            assert!(sent < MAX_DRAINED, "too many datagrams");
            self.on_the_way.push_back(datagram);
            if self.on_the_way.len() > MAX_ON_THE_WAY {
                self.on_the_way.pop_front();
            }
        }
        engine.check();
    }
}

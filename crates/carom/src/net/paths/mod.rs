//! Detects which members this node's multicast reaches.
//!
//! A node sends hellos by multicast: several when it meets a new member, then one every two
//! seconds. A hello lists members that have not confirmed yet, and these members answer by unicast.
//! A member that no longer receives the hellos reports this. A member that has not confirmed
//! receives unicast copies, so that a wrong assumption costs copies, but never messages.
//!
//! Probes find the largest packet that a path to a member carries; see [`mtu`].

mod mtu;
mod packet;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use carom_proto::wire::Datagram;
use carom_proto::{Class, Destination, Endpoint, NodeId, Origin, Time, Transmit, Wakeup};

use crate::shared::status::{MemberPath, NetCounters};
use mtu::PathMtu;
pub(crate) use mtu::{COMMON_MTU, IP_UDP_BYTES};
pub(crate) use packet::{LEAST_PROBE_BYTES, PART_OVERHEAD, Packet, Part};

#[derive(Debug)]
pub(crate) struct Paths {
    own: NodeId,
    origin: Origin,
    says_hello: bool,
    peers: BTreeMap<NodeId, Peer>,
    sequence: u32,
    step: usize,
    last_hello: Option<Time>,
    next_hello: Option<Time>,
    hello_is_due: bool,
    answers: VecDeque<(Destination, Packet)>,
    has_changed: bool,
    is_deaf: bool,
    pub(crate) mtu: PathMtu,
    pub(crate) counters: NetCounters,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PathInput {
    /// A part of another datagram, and the sender of that datagram.
    Part(NodeId, Part),
    /// The answer of a stranger to the probe with this nonce.
    Answer(NodeId, u32),
}

#[derive(Debug)]
struct Peer {
    met: Time,
    path: MemberPath,
    /// Time of the peer's last hello, if one has arrived and the peer relies on multicast.
    hello_at: Option<Time>,
    complaints: u8,
}

impl Paths {
    /// Creates the table of paths. `says_hello` is `true` if the node sends multicast. `ceiling` is
    /// the maximum size, in bytes, of a packet that it sends.
    pub(crate) fn new(
        origin: impl Into<Origin>,
        says_hello: bool,
        ceiling: u16,
        seed: u64,
    ) -> Self {
        let origin = origin.into();
        Self {
            own: origin.node,
            origin,
            says_hello,
            peers: BTreeMap::new(),
            sequence: 0,
            step: 0,
            last_hello: None,
            next_hello: None,
            hello_is_due: false,
            answers: VecDeque::new(),
            has_changed: false,
            is_deaf: false,
            mtu: PathMtu::new(ceiling, seed),
            counters: NetCounters::default(),
        }
    }

    pub(crate) fn meet(&mut self, now: Time, node: NodeId) {
        let path = if self.says_hello { MemberPath::Unknown } else { MemberPath::Unicast };
        let peer = Peer { met: now, path, hello_at: None, complaints: 0 };
        if node == self.own || self.peers.contains_key(&node) {
            return;
        }
        self.peers.insert(node, peer);
        self.mtu.meet(now, node);
        self.has_changed = true;
        self.step = 0;
        let soonest = self.last_hello.map_or(now, |last| last + HELLO_GAPS[0] / 2);
        self.next_hello = Some(soonest.max(now));
    }

    pub(crate) fn part(&mut self, node: NodeId) {
        self.has_changed |= self.peers.remove(&node).is_some();
        self.mtu.part(node);
        if self.peers.is_empty() {
            self.next_hello = None;
        }
    }

    pub(crate) fn path(&self, node: NodeId) -> MemberPath {
        self.peers.get(&node).map_or(MemberPath::Unknown, |peer| peer.path)
    }

    pub(crate) fn unreached(&self) -> BTreeSet<NodeId> {
        let unreached =
            |(node, peer): (&NodeId, &Peer)| (peer.path != MemberPath::Multicast).then_some(*node);
        self.peers.iter().filter_map(unreached).collect()
    }

    pub(crate) fn are_known(&self) -> bool {
        self.peers.values().all(|peer| peer.path != MemberPath::Unknown)
    }

    pub(crate) fn take_change(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }

    pub(crate) fn multicast_failed(&mut self) {
        for peer in self.peers.values_mut() {
            self.has_changed |= peer.path != MemberPath::Unicast;
            peer.path = MemberPath::Unicast;
        }
    }

    /// Requests copies from all members, because this node does not receive all multicast.
    pub(crate) fn stop_receiving(&mut self) {
        self.is_deaf = true;
        for peer in self.peers.values_mut() {
            if peer.hello_at.take().is_some() {
                peer.complaints = COMPLAINTS;
            }
        }
    }

    pub(crate) fn handle_datagram(
        &mut self,
        now: Time,
        source: Endpoint,
        datagram: &Datagram<'_>,
    ) -> Option<PathInput> {
        let Ok(packet) = Packet::decode(datagram) else {
            self.counters.path_unknown += 1;
            return None;
        };
        let sender = datagram.header().sender;
        match packet {
            Packet::Hello { sequence, asked } => {
                self.on_hello(now, source, sender, sequence, &asked);
            }
            Packet::Heard { whose, .. } => self.on_answer(sender, whose, MemberPath::Multicast),
            Packet::Unheard { whose, .. } => self.on_answer(sender, whose, MemberPath::Unicast),
            Packet::Probe { sequence, bytes } => {
                let carried = Packet::Carried { sequence, whose: sender, bytes };
                self.answer(Destination::Endpoint(source), carried);
            }
            Packet::Carried { sequence, whose, .. }
                if whose == self.own && !self.peers.contains_key(&sender) =>
            {
                return Some(PathInput::Answer(sender, sequence));
            }
            Packet::Carried { sequence, whose, bytes } if whose == self.own => {
                self.mtu.on_carried(now, sender, sequence, bytes);
            }
            Packet::Carried { .. } => self.counters.path_unknown += 1,
            Packet::Part(part) => return Some(PathInput::Part(sender, part)),
        }
        None
    }

    pub(crate) fn probe(&mut self, endpoint: Endpoint, sequence: u32) {
        let probe = Packet::Probe { sequence, bytes: LEAST_PROBE_BYTES };
        self.answer(Destination::Endpoint(endpoint), probe);
    }

    pub(crate) fn handle_timeout(&mut self, now: Time) {
        self.mtu.handle_timeout(now);
        if self.next_hello.is_none_or(|due| due > now) {
            return;
        }
        self.give_up_waiting(now);
        self.complain(now);
        self.hello_is_due = self.says_hello;
        self.last_hello = Some(now);
        let all_confirmed = self.peers.values().all(|peer| peer.path == MemberPath::Multicast);
        let gap = match HELLO_GAPS.get(self.step) {
            Some(gap) if self.says_hello && !all_confirmed => *gap,
            _ => HELLO_PERIOD,
        };
        self.step += 1;
        self.next_hello = Some(now + gap);
    }

    pub(crate) fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Transmit> {
        if let Some((destination, packet)) = self.answers.pop_front() {
            packet.encode(self.origin, out);
            return Some(Transmit { destination, class: Class::Control });
        }
        if let Some((node, probe)) = self.mtu.pop_probe() {
            probe.encode(self.origin, out);
            return Some(Transmit { destination: Destination::Node(node), class: Class::Control });
        }
        if !std::mem::take(&mut self.hello_is_due) {
            return None;
        }
        self.sequence = self.sequence.wrapping_add(1);
        let hello = Packet::Hello { sequence: self.sequence, asked: self.unconfirmed() };
        hello.encode(self.origin, out);
        Some(Transmit { destination: Destination::Lan, class: Class::Control })
    }

    pub(crate) fn poll_timeout(&self) -> Option<Wakeup> {
        let hello = self.next_hello.map(|at| Wakeup { at, reason: "hello" });
        let probe = self.mtu.poll_timeout().map(|at| Wakeup { at, reason: "path MTU" });
        hello.into_iter().chain(probe).min_by_key(|wakeup| wakeup.at)
    }

    fn on_hello(
        &mut self,
        now: Time,
        source: Endpoint,
        sender: NodeId,
        sequence: u32,
        asked: &[NodeId],
    ) {
        if self.is_deaf {
            return;
        }
        if let Some(peer) = self.peers.get_mut(&sender) {
            peer.complaints = 0;
            if peer.hello_at.is_some() || asked.contains(&self.own) {
                peer.hello_at = Some(now);
            }
        }
        if asked.contains(&self.own) {
            let heard = Packet::Heard { whose: sender, sequence };
            self.answer(Destination::Endpoint(source), heard);
        }
    }

    fn on_answer(&mut self, sender: NodeId, whose: NodeId, path: MemberPath) {
        match self.peers.get_mut(&sender) {
            // This answer is for an earlier process at this node's address.
            _ if whose != self.own => self.counters.path_unknown += 1,
            Some(peer) if self.says_hello => {
                self.has_changed |= peer.path != path;
                peer.path = path;
            }
            _ => {}
        }
    }

    fn give_up_waiting(&mut self, now: Time) {
        for peer in self.peers.values_mut() {
            if peer.path == MemberPath::Unknown && now.since(peer.met) >= PATIENCE {
                peer.path = MemberPath::Unicast;
                self.has_changed = true;
            }
        }
    }

    fn complain(&mut self, now: Time) {
        let mut complaints = Vec::new();
        for (node, peer) in &mut self.peers {
            if peer.hello_at.is_some_and(|at| now.since(at) >= SILENCE) {
                peer.hello_at = None;
                peer.complaints = COMPLAINTS;
            }
            if peer.complaints > 0 {
                peer.complaints -= 1;
                complaints.push(*node);
            }
        }
        for node in complaints {
            let unheard = Packet::Unheard { whose: node, sequence: 0 };
            self.answer(Destination::Node(node), unheard);
        }
    }

    /// Returns members for a hello. If not all fit, successive hellos list different ones.
    fn unconfirmed(&self) -> Vec<NodeId> {
        let mut asked: Vec<NodeId> = self.unreached().into_iter().collect();
        if asked.len() > packet::MAX_ASKED {
            let turn = self.sequence as usize * packet::MAX_ASKED % asked.len();
            asked.rotate_left(turn);
            asked.truncate(packet::MAX_ASKED);
        }
        asked
    }

    fn answer(&mut self, destination: Destination, packet: Packet) {
        if self.answers.len() < MAX_ANSWERS {
            self.answers.push_back((destination, packet));
        } else {
            self.counters.path_answers_dropped += 1;
        }
    }
}

/// Decodes a path packet and encodes it again, for the fuzz target. Returns `None` if the datagram
/// is not a path packet.
#[cfg(fuzzing)]
pub fn fuzz_path_packet(datagram: &[u8]) -> Option<Vec<u8>> {
    let datagram = Datagram::parse(datagram).ok()?;
    let packet = Packet::decode(&datagram).ok()?;
    let mut again = Vec::new();
    packet.encode(datagram.header().origin(), &mut again);
    Some(again)
}

/// Gaps between the first hellos, about one second in total. With 20 % loss in both directions, all
/// of them rarely fail.
const HELLO_GAPS: [Duration; 6] = [
    Duration::from_millis(20),
    Duration::from_millis(40),
    Duration::from_millis(80),
    Duration::from_millis(160),
    Duration::from_millis(320),
    Duration::from_millis(320),
];
const HELLO_PERIOD: Duration = Duration::from_secs(2);
/// A member that has not confirmed after this time counts as unreached.
const PATIENCE: Duration = Duration::from_millis(900);
/// Duration of five missed hellos. With 20 % loss, five in a row are missed once in 3000 periods.
const SILENCE: Duration = Duration::from_secs(10);
/// Number of times a complaint is sent, because it may be lost.
const COMPLAINTS: u8 = 3;
const MAX_ANSWERS: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    const A: NodeId = NodeId(1);
    const B: NodeId = NodeId(2);

    struct Pair {
        now: Time,
        nodes: [Paths; 2],
        multicast_reaches: [bool; 2],
    }

    impl Pair {
        fn new(multicast_reaches: [bool; 2]) -> Self {
            let mut nodes = [Paths::new(A, true, 1500, 1), Paths::new(B, true, 1500, 2)];
            nodes[0].meet(Time::ZERO, B);
            nodes[1].meet(Time::ZERO, A);
            Self { now: Time::ZERO, nodes, multicast_reaches }
        }

        fn run(&mut self, span: Duration) {
            let end = self.now + span;
            loop {
                let due = self.nodes.iter().filter_map(|it| it.poll_timeout()).map(|it| it.at);
                match due.min() {
                    Some(due) if due <= end => self.now = due.max(self.now),
                    _ => break,
                }
                self.nodes.iter_mut().for_each(|it| it.handle_timeout(self.now));
                while self.carry(0) | self.carry(1) {}
            }
            self.now = end;
        }

        fn carry(&mut self, from: usize) -> bool {
            let mut out = Vec::new();
            let Some(transmit) = self.nodes[from].poll_transmit(&mut out) else { return false };
            let source = Endpoint(([127, 0, 0, 1], 1).into());
            let arrives = transmit.destination != Destination::Lan || self.multicast_reaches[from];
            if arrives {
                let datagram = Datagram::parse(&out).expect("a datagram");
                self.nodes[1 - from].handle_datagram(self.now, source, &datagram);
            }
            true
        }

        fn paths(&self) -> [MemberPath; 2] {
            [self.nodes[0].path(B), self.nodes[1].path(A)]
        }
    }

    #[test]
    fn members_that_hear_each_other_use_multicast_at_once() {
        let mut pair = Pair::new([true, true]);
        assert_eq!(pair.paths(), [MemberPath::Unknown; 2]);
        pair.run(Duration::from_millis(1));
        assert_eq!(pair.paths(), [MemberPath::Multicast; 2]);
        assert!(pair.nodes[0].take_change() && !pair.nodes[0].take_change());
    }

    #[test]
    fn each_direction_is_decided_by_itself() {
        let mut pair = Pair::new([true, false]);
        pair.run(Duration::from_millis(500));
        assert_eq!(pair.paths(), [MemberPath::Multicast, MemberPath::Unknown]);
        pair.run(Duration::from_secs(1));
        assert_eq!(pair.paths(), [MemberPath::Multicast, MemberPath::Unicast]);
    }

    #[test]
    fn a_path_that_breaks_is_noticed_and_one_that_heals_too() {
        let mut pair = Pair::new([true, true]);
        pair.run(Duration::from_secs(5));
        pair.multicast_reaches[0] = false;
        pair.run(Duration::from_secs(14));
        assert_eq!(pair.paths(), [MemberPath::Unicast, MemberPath::Multicast]);
        pair.multicast_reaches[0] = true;
        pair.run(Duration::from_secs(3));
        assert_eq!(pair.paths(), [MemberPath::Multicast; 2]);
    }

    #[test]
    fn a_node_that_cannot_hear_everything_is_sent_copies() {
        let mut pair = Pair::new([true, true]);
        pair.run(Duration::from_secs(1));
        pair.nodes[1].stop_receiving();
        pair.run(Duration::from_secs(3));
        assert_eq!(pair.paths(), [MemberPath::Unicast, MemberPath::Multicast]);
    }

    #[test]
    fn node_without_multicast_sends_no_hello_and_only_copies() {
        let mut paths = Paths::new(A, false, 1500, 1);
        paths.meet(Time::ZERO, B);
        paths.handle_timeout(Time::ZERO);
        let sent = paths.poll_transmit(&mut Vec::new()).map(|it| it.destination);
        assert_eq!(sent, Some(Destination::Node(B)), "a probe for the path MTU");
        assert_eq!(paths.poll_transmit(&mut Vec::new()), None);
        assert_eq!(paths.path(B), MemberPath::Unicast);
        assert!(paths.are_known());
    }

    #[test]
    fn answer_meant_for_an_earlier_process_changes_nothing() {
        let mut paths = Paths::new(A, true, 1500, 1);
        paths.meet(Time::ZERO, B);
        let mut out = Vec::new();
        Packet::Heard { whose: NodeId(9), sequence: 1 }.encode(B, &mut out);
        let datagram = Datagram::parse(&out).expect("a datagram");
        paths.handle_datagram(Time::ZERO, Endpoint(([127, 0, 0, 1], 1).into()), &datagram);
        assert_eq!((paths.path(B), paths.counters.path_unknown), (MemberPath::Unknown, 1));
    }

    #[test]
    fn without_members_there_is_nothing_to_do() {
        let mut paths = Paths::new(A, true, 1500, 1);
        assert_eq!(paths.poll_timeout(), None);
        paths.meet(Time::ZERO, B);
        assert!(paths.poll_timeout().is_some());
        paths.part(B);
        assert_eq!(paths.poll_timeout(), None);
    }
}

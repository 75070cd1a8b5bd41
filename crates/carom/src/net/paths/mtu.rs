//! The path MTU to each member (RFC 8899, with separate probe packets).
//!
//! A member must first answer a small probe, so that large probes are sent only to actual nodes.
//! Then a probe of the largest size is sent. If it does not arrive, probes of all common sizes
//! follow, and the largest answered size is the path MTU. The search is repeated periodically.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use carom_proto::{NodeId, Rng, Time};

use super::packet::{LEAST_PROBE_BYTES, Packet};

#[derive(Debug)]
pub(crate) struct PathMtu {
    ceiling: u16,
    peers: BTreeMap<NodeId, Search>,
    least: u16,
    next: Option<Time>,
    rng: Rng,
    probes: VecDeque<(NodeId, Packet)>,
    news: VecDeque<(NodeId, u16)>,
    pub(crate) probes_sent: u64,
}

#[derive(Debug)]
struct Search {
    phase: Phase,
    nonce: u32,
    tries: u32,
    due: Time,
    sent: Time,
    /// Time between probes, longer than the round trip.
    gap: Duration,
    carried: Option<u16>,
    confirmed: Option<u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Greeting,
    Whole,
    Ladder,
    Settled,
}

impl PathMtu {
    pub(crate) fn new(ceiling: u16, seed: u64) -> Self {
        Self {
            ceiling,
            peers: BTreeMap::new(),
            least: ceiling.min(COMMON_MTU),
            next: None,
            rng: Rng::new(seed),
            probes: VecDeque::new(),
            news: VecDeque::new(),
            probes_sent: 0,
        }
    }

    pub(crate) fn meet(&mut self, now: Time, node: NodeId) {
        if self.peers.is_empty() {
            // Until now, the value for the removed members was kept.
            self.least = self.or_common(None);
        }
        let nonce = self.rng.next_u64() as u32;
        self.peers.entry(node).or_insert(Search {
            phase: Phase::Greeting,
            nonce,
            tries: 0,
            due: now,
            sent: now,
            gap: FIRST_GAP,
            carried: None,
            confirmed: None,
        });
        self.least = self.least.min(self.or_common(None));
        self.wake_at(now);
    }

    pub(crate) fn part(&mut self, node: NodeId) {
        if self.peers.remove(&node).is_some() {
            self.probes.retain(|(to, _)| *to != node);
        }
        match self.peers.is_empty() {
            true => self.next = None,
            false => self.compute_least(),
        }
    }

    pub(crate) fn ceiling(&self) -> u16 {
        self.ceiling
    }

    pub(crate) fn set_ceiling(&mut self, now: Time, bytes: u16) {
        if bytes == self.ceiling {
            return;
        }
        self.ceiling = bytes;
        self.probes.clear();
        for search in self.peers.values_mut().filter(|it| it.phase != Phase::Greeting) {
            search.begin(now, self.rng.next_u64() as u32);
        }
        self.compute_least();
        self.wake_at(now);
    }

    pub(crate) fn to(&self, node: NodeId) -> u16 {
        let confirmed = self.peers.get(&node).and_then(|search| search.confirmed);
        self.or_common(confirmed)
    }

    pub(crate) fn confirmed(&self, node: NodeId) -> Option<u16> {
        self.peers.get(&node)?.confirmed
    }

    pub(crate) fn least(&self) -> u16 {
        self.least
    }

    fn compute_least(&mut self) {
        let each = self.peers.values().map(|search| self.or_common(search.confirmed));
        self.least = each.min().unwrap_or_else(|| self.or_common(None));
    }

    fn wake_at(&mut self, time: Time) {
        self.next = Some(self.next.map_or(time, |next| next.min(time)));
    }

    fn or_common(&self, confirmed: Option<u16>) -> u16 {
        confirmed.unwrap_or(COMMON_MTU).min(self.ceiling)
    }

    pub(crate) fn pop_news(&mut self) -> Option<(NodeId, u16)> {
        self.news.pop_front()
    }

    pub(crate) fn pop_probe(&mut self) -> Option<(NodeId, Packet)> {
        let probe = self.probes.pop_front();
        self.probes_sent += u64::from(probe.is_some());
        probe
    }

    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        self.next
    }

    pub(crate) fn handle_timeout(&mut self, now: Time) {
        if self.next.is_none_or(|next| next > now) {
            return;
        }
        let (ceiling, interval) = (self.ceiling, self.interval());
        for (node, search) in &mut self.peers {
            if search.due > now {
                continue;
            }
            if search.phase == Phase::Settled {
                search.begin(now, self.rng.next_u64() as u32);
            }
            let before = search.confirmed;
            for bytes in search.next_sizes(now, ceiling, interval) {
                let bytes = bytes - IP_UDP_BYTES;
                self.probes.push_back((*node, Packet::Probe { sequence: search.nonce, bytes }));
            }
            if let Some(confirmed) = search.confirmed
                && search.confirmed != before
                && confirmed < ceiling
            {
                self.news.push_back((*node, confirmed));
            }
        }
        self.next = self.peers.values().map(|search| search.due).min();
        self.compute_least();
    }

    /// Processes the answer to a probe of `bytes` bytes, without the IP and UDP headers.
    pub(crate) fn on_carried(&mut self, now: Time, node: NodeId, nonce: u32, bytes: u16) {
        let (ceiling, interval) = (self.ceiling, self.interval());
        let Some(search) = self.peers.get_mut(&node).filter(|it| it.nonce == nonce) else { return };
        let packet = bytes.saturating_add(IP_UDP_BYTES).min(ceiling);
        search.carried = search.carried.max(Some(packet));
        match search.phase {
            Phase::Greeting => {
                search.gap = (4 * now.since(search.sent)).clamp(LEAST_GAP, LAST_GAP);
                search.begin(now, nonce);
                self.wake_at(now);
            }
            Phase::Whole | Phase::Ladder if packet == ceiling => {
                let is_new = search.confirmed.replace(ceiling) != Some(ceiling);
                search.settle(now + interval, ceiling);
                if is_new {
                    self.compute_least();
                }
            }
            Phase::Whole | Phase::Ladder | Phase::Settled => {}
        }
    }

    /// Returns the time between searches. It grows with the membership, to limit the probe rate.
    fn interval(&self) -> Duration {
        SEARCH_EVERY.max(SEARCH_SHARE * self.peers.len() as u32)
    }
}

impl Search {
    fn begin(&mut self, now: Time, nonce: u32) {
        (self.phase, self.nonce, self.tries) = (Phase::Whole, nonce, 0);
        (self.carried, self.due) = (None, now);
    }

    fn settle(&mut self, next: Time, mtu: u16) {
        (self.phase, self.confirmed, self.due) = (Phase::Settled, Some(mtu), next);
    }

    fn next_sizes(&mut self, now: Time, ceiling: u16, interval: Duration) -> Vec<u16> {
        let small = LEAST_PROBE_BYTES + IP_UDP_BYTES;
        self.tries += 1;
        self.sent = now;
        match self.phase {
            Phase::Greeting => {
                self.due = now + FIRST_GAP * (1 << (self.tries - 1).min(6));
                return vec![small];
            }
            Phase::Whole if self.tries <= WHOLE_TRIES => {
                self.due = now + self.gap;
                return vec![ceiling];
            }
            Phase::Whole => (self.phase, self.tries) = (Phase::Ladder, 0),
            Phase::Ladder => {
                // Larger packets did not arrive, regardless of the result of the search.
                self.confirmed = self.carried.map(|it| it.max(LADDER_END)).or(self.confirmed);
            }
            Phase::Settled => {}
        }
        if self.tries < LADDER_ROUNDS {
            self.due = now + self.gap;
            let common = LADDER.iter().copied().filter(|size| *size < ceiling);
            return [ceiling].into_iter().chain(common).chain([small]).collect();
        }
        match self.carried {
            Some(carried) => self.settle(now + interval, carried.max(LADDER_END)),
            // Without any answer, nothing is known about packet sizes.
            None => (self.phase, self.tries, self.due) = (Phase::Greeting, 0, now + self.gap),
        }
        Vec::new()
    }
}

pub(crate) const IP_UDP_BYTES: u16 = 28;
/// MTU of nearly every network, in bytes. A larger MTU is assumed only after a successful probe.
pub(crate) const COMMON_MTU: u16 = 1500;
/// Probed sizes, in bytes: jumbo frames, Ethernet, and what remains inside tunnels (PPPoE, GRE,
/// VXLAN, WireGuard, IPsec).
const LADDER: [u16; 21] = [
    9000, 8900, 8192, 4096, 2048, 1500, 1492, 1480, 1460, 1450, 1440, 1420, 1400, 1380, 1350, 1300,
    1280, 1200, 1000, 800, LADDER_END,
];
/// Packet size, in bytes, that every host accepts. No engine works with smaller packets.
const LADDER_END: u16 = 576;
const WHOLE_TRIES: u32 = 3;
const LADDER_ROUNDS: u32 = 3;
const FIRST_GAP: Duration = Duration::from_millis(100);
/// Minimum time between probes on paths with a short round trip. Later answers still count.
const LEAST_GAP: Duration = Duration::from_millis(25);
const LAST_GAP: Duration = Duration::from_secs(2);
const SEARCH_EVERY: Duration = Duration::from_secs(5);
const SEARCH_SHARE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: NodeId = NodeId(7);

    struct Path {
        now: Time,
        mtu: PathMtu,
        carries: u16,
        answers: bool,
        largest_probe: u16,
    }

    impl Path {
        fn new(ceiling: u16, carries: u16) -> Self {
            let mut mtu = PathMtu::new(ceiling, 1);
            mtu.meet(Time::ZERO, PEER);
            Self { now: Time::ZERO, mtu, carries, answers: true, largest_probe: 0 }
        }

        fn run(&mut self, span: Duration) {
            let end = self.now + span;
            while let Some(due) = self.mtu.poll_timeout().filter(|due| *due <= end) {
                self.now = due.max(self.now);
                self.mtu.handle_timeout(self.now);
                while let Some((node, packet)) = self.mtu.pop_probe() {
                    let Packet::Probe { sequence, bytes } = packet else { panic!("no probe") };
                    self.largest_probe = self.largest_probe.max(bytes + IP_UDP_BYTES);
                    if self.answers && bytes + IP_UDP_BYTES <= self.carries {
                        self.mtu.on_carried(self.now, node, sequence, bytes);
                    }
                }
            }
            self.now = end;
        }

        fn after(mut self, span: Duration) -> u16 {
            self.run(span);
            self.mtu.least()
        }
    }

    const SOON: Duration = Duration::from_secs(1);

    #[test]
    fn a_wide_path_is_confirmed_by_one_packet() {
        let mut path = Path::new(1500, 1500);
        path.run(Duration::from_millis(1));
        assert_eq!((path.mtu.confirmed(PEER), path.mtu.probes_sent), (Some(1500), 2));
    }

    #[test]
    fn narrow_path_gets_the_next_common_size_and_one_report() {
        let mut path = Path::new(1500, 1430);
        path.run(SOON);
        assert_eq!((path.mtu.least(), path.mtu.to(PEER)), (1420, 1420));
        assert_eq!((path.mtu.pop_news(), path.mtu.pop_news()), (Some((PEER, 1420)), None));
        path.run(4 * SEARCH_EVERY);
        assert_eq!((path.mtu.least(), path.mtu.pop_news()), (1420, None));
    }

    #[test]
    fn jumbo_frames_are_used_only_where_they_come_through() {
        assert_eq!(PathMtu::new(9000, 1).least(), COMMON_MTU);
        assert_eq!(Path::new(9000, 9000).after(SOON), 9000);
        assert_eq!(Path::new(9000, 1500).after(SOON), 1500);
        assert_eq!(Path::new(9000, 300).after(SOON), LADDER_END);
    }

    #[test]
    fn a_path_that_becomes_narrower_or_wider_is_followed() {
        let mut path = Path::new(1500, 1500);
        path.run(SOON);
        path.carries = 1300;
        path.run(SEARCH_EVERY + SOON);
        assert_eq!(path.mtu.least(), 1300);
        path.carries = 1500;
        path.run(SEARCH_EVERY + SOON);
        assert_eq!(path.mtu.least(), 1500);
        path.mtu.set_ceiling(path.now, 1000);
        assert_eq!(path.mtu.least(), 1000);
        path.run(SOON);
        assert_eq!(path.mtu.confirmed(PEER), Some(1000));
    }

    #[test]
    fn silent_member_gets_small_probes_and_changes_no_mtu() {
        let mut path = Path::new(1500, 1500);
        path.answers = false;
        path.run(Duration::from_secs(60));
        assert_eq!((path.mtu.least(), path.largest_probe), (1500, 92));
        assert!(path.mtu.probes_sent < 20, "{}", path.mtu.probes_sent);
        let mut path = Path::new(1500, 1400);
        path.run(SOON);
        path.answers = false;
        path.run(Duration::from_secs(60));
        assert_eq!(path.mtu.least(), 1400, "silence does not indicate a size");
        path.mtu.part(PEER);
        assert_eq!((path.mtu.least(), path.mtu.poll_timeout()), (1400, None));
        path.mtu.meet(path.now, NodeId(8));
        assert_eq!(path.mtu.least(), 1500, "nothing is known about this member");
    }

    #[test]
    fn unrequested_answer_changes_nothing() {
        let mut path = Path::new(9000, 9000);
        path.answers = false;
        path.run(SOON);
        let nonce = path.mtu.peers[&PEER].nonce;
        path.mtu.on_carried(path.now, PEER, nonce ^ 1, 8000);
        path.mtu.on_carried(path.now, NodeId(8), nonce, 8000);
        assert_eq!(path.mtu.least(), COMMON_MTU);
    }
}

//! Pings: targets, suspicions and reports.
//!
//! A ping is a datagram of protocol 2 (membership) with the common header, in which `view` is the
//! number of the ping. Its body is the id of the pinged node, u64. The pong has the same number,
//! and its body is the id of the pinger. A node answers only pings with its own id, so a node that
//! has the address of a former node does not answer for it.
//!
//! With the default detection time of 3 s, a target is pinged once per second. After two unanswered
//! pings, it is *suspected* and pinged five times per second. After 3 s, it is *reported*. The
//! report is repeated once per second while the target is watched, because a registry process may
//! have rejected it after receiving something from the target.

use alloc::collections::{BTreeMap, VecDeque};
use core::time::Duration;

use super::protocol::frame::{Frame, Member, millis};
use crate::codec::Field;
use crate::wire::{Datagram, Header, Protocol};
use crate::{Endpoint, GroupId, NodeId, Origin, Time, Timers};

const PING: u8 = 32;
const PONG: u8 = 33;

#[derive(Debug)]
pub(super) struct Pinger {
    own: Origin,
    detection_time: Duration,
    targets: BTreeMap<NodeId, Target>,
    timers: Timers<NodeId>,
    number: u32,
    outgoing: VecDeque<(Endpoint, Vec<u8>)>,
    pub(super) reports: VecDeque<Frame>,
    pub(super) counters: PingCounters,
}

crate::counters! {
    pub(super) struct PingCounters {
        pings_received,
        pings_sent,
        pings_foreign,
        pongs_received,
        suspicions,
        reports_made,
    }
}

#[derive(Clone, Copy, Debug)]
struct Target {
    member: Member,
    heard: Time,
    is_suspected: bool,
}

impl Pinger {
    pub(super) fn new(own: impl Into<Origin>) -> Self {
        Self {
            own: own.into(),
            detection_time: Duration::from_secs(3),
            targets: BTreeMap::new(),
            timers: Timers::new(),
            number: 0,
            outgoing: VecDeque::new(),
            reports: VecDeque::new(),
            counters: PingCounters::default(),
        }
    }

    pub(super) fn set_detection_time(&mut self, time: Duration) {
        self.detection_time = time.max(Duration::from_millis(100));
    }

    pub(super) fn watch(&mut self, now: Time, member: Member) {
        let target = Target { member, heard: now, is_suspected: false };
        self.targets.insert(member.node, target);
        self.timers.set(member.node, now);
    }

    pub(super) fn unwatch(&mut self, node: NodeId) {
        self.targets.remove(&node);
        self.timers.cancel(node);
    }

    pub(super) fn watches(&self, member: Member) -> bool {
        self.targets.get(&member.node).is_some_and(|target| target.member == member)
    }

    pub(super) fn targets(&self) -> impl Iterator<Item = NodeId> {
        self.targets.keys().copied()
    }

    /// Processes a ping or pong. Returns `false` if the datagram is neither of them.
    pub(super) fn handle_datagram(
        &mut self,
        now: Time,
        source: Endpoint,
        datagram: &Datagram<'_>,
    ) -> bool {
        let (header, Ok(mut body)) = (datagram.header(), datagram.body()) else { return false };
        let Ok(meant) = NodeId::take(&mut body) else { return false };
        let is_sound = body.is_empty() && header.protocol == Protocol::Membership;
        match header.kind {
            PING if is_sound && meant == self.own.node => {
                self.counters.pings_received += 1;
                let pong = datagram_of(PONG, self.own, header.sender, header.view);
                self.outgoing.push_back((source, pong));
            }
            PONG if is_sound && meant == self.own.node => {
                self.counters.pongs_received += 1;
                if let Some(target) = self.targets.get_mut(&header.sender) {
                    (target.heard, target.is_suspected) = (now, false);
                }
            }
            PING | PONG => self.counters.pings_foreign += 1,
            _ => return false,
        }
        true
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        while let Some(node) = self.timers.pop_due(now) {
            self.ping(now, node);
        }
    }

    pub(super) fn next_due(&self) -> Option<Time> {
        self.timers.next_due()
    }

    pub(super) fn poll_datagram(&mut self) -> Option<(Endpoint, Vec<u8>)> {
        self.outgoing.pop_front()
    }

    fn ping(&mut self, now: Time, node: NodeId) {
        let Some(target) = self.targets.get_mut(&node) else { return };
        let (silent, period) = (now.since(target.heard), self.detection_time / 3);
        let mut pause = period;
        if silent >= self.detection_time {
            self.counters.reports_made += 1;
            let (incarnation, silent_ms) = (target.member.incarnation, millis(silent));
            self.reports.push_back(Frame::Report { node, incarnation, silent_ms });
        } else if silent >= period * 2 {
            self.counters.suspicions += u64::from(!target.is_suspected);
            target.is_suspected = true;
            // The last of these pings falls on the end of the detection time.
            pause = (period / 5).min(self.detection_time - silent);
        }
        self.number = self.number.wrapping_add(1);
        let ping = datagram_of(PING, self.own, node, self.number);
        self.outgoing.push_back((target.member.endpoint, ping));
        self.counters.pings_sent += 1;
        self.timers.set(node, now + pause);
    }
}

fn datagram_of(kind: u8, origin: Origin, meant: NodeId, number: u32) -> Vec<u8> {
    let header = Header::new(Protocol::Membership, kind, GroupId::NONE, origin);
    Header { view: number, ..header }.datagram(&meant.0.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Incarnation;

    fn member(node: u64) -> Member {
        let endpoint = Endpoint(core::net::SocketAddr::from(([10, 0, 0, node as u8], 7400)));
        Member { node: NodeId(node), incarnation: 2, start: Incarnation(0), endpoint }
    }

    const fn millis(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn a_ping_on_the_wire_is_this() {
        let own = Origin { node: NodeId(1), incarnation: Incarnation(9) };
        let ping = datagram_of(PING, own, NodeId(2), 7);
        let golden = [
            &[0xCA, 0x70, 2, 2, 32, 0, 0, 44][..],
            &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], // group, sender
            &[0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 7], // incarnation, number
            &[0, 0, 0, 0, 0, 0, 0, 2],             // the pinged node
        ];
        assert_eq!((&ping[..8], &ping[12..]), (golden[0], &golden[1..].concat()[..]));
        assert!(Header::decode(&ping).is_ok(), "the checksum is right");
    }

    fn parsed(datagram: &[u8]) -> Datagram<'_> {
        Datagram::parse(datagram).expect("a datagram")
    }

    #[test]
    fn a_node_answers_pings_that_mean_itself_alone() {
        let (mut pinger, mut target) = (Pinger::new(NodeId(1)), Pinger::new(NodeId(2)));
        let mut stranger = Pinger::new(NodeId(3));
        pinger.watch(Time(0), member(2));
        pinger.handle_timeout(Time(0));
        let (to, ping) = pinger.poll_datagram().expect("a ping");
        assert_eq!(to, member(2).endpoint);
        assert!(stranger.handle_datagram(Time(1), member(1).endpoint, &parsed(&ping)));
        assert_eq!((stranger.poll_datagram(), stranger.counters.pings_foreign), (None, 1));
        assert!(target.handle_datagram(Time(1), member(1).endpoint, &parsed(&ping)));
        let (to, pong) = target.poll_datagram().expect("a pong");
        assert_eq!(to, member(1).endpoint);
        assert!(pinger.handle_datagram(Time(5), member(2).endpoint, &parsed(&pong)));
        assert_eq!(pinger.targets[&NodeId(2)].heard, Time(5));
        assert!(!pinger.handle_datagram(Time(5), member(2).endpoint, &parsed(&pong[..40])));
    }

    #[test]
    fn silent_node_is_suspected_then_reported_at_detection_time() {
        for detection in [3000, 100] {
            let mut pinger = Pinger::new(NodeId(1));
            pinger.set_detection_time(millis(detection));
            pinger.watch(Time(0), member(2));
            let mut reported = None;
            while reported.is_none() {
                let now = pinger.next_due().expect("a target is pinged");
                pinger.handle_timeout(now);
                reported = pinger.reports.pop_front().map(|report| (now, report));
            }
            let (now, report) = reported.expect("it was waited for");
            let silent = now.since(Time(0));
            assert!(silent >= millis(detection) && silent <= millis(detection + 1), "{silent:?}");
            let (node, incarnation, silent_ms) = (NodeId(2), 2, detection as u32);
            assert_eq!(report, Frame::Report { node, incarnation, silent_ms });
            assert_eq!(pinger.counters.suspicions, 1);
            assert!((7..=9).contains(&pinger.counters.pings_sent), "{:?}", pinger.counters);
        }
    }

    #[test]
    fn one_answer_in_time_ends_a_suspicion() {
        let (mut pinger, mut target) = (Pinger::new(NodeId(1)), Pinger::new(NodeId(2)));
        pinger.watch(Time(0), member(2));
        for ping in 0..1000 {
            let now = pinger.next_due().expect("a target is pinged");
            pinger.handle_timeout(now);
            while let Some((_, datagram)) = pinger.poll_datagram() {
                if ping % 6 == 0 {
                    target.handle_datagram(now, member(1).endpoint, &parsed(&datagram));
                }
            }
            while let Some((_, pong)) = target.poll_datagram() {
                pinger.handle_datagram(now, member(2).endpoint, &parsed(&pong));
            }
        }
        assert!(pinger.counters.suspicions > 100, "{:?}", pinger.counters);
        assert_eq!(pinger.counters.reports_made, 0);
    }
}

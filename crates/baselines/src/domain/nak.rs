//! NAK recovery: the requested packets, and the times of the requests.

use core::time::Duration;
use std::collections::BTreeMap;

use carom_proto::{GroupId, NodeId, PacketId, Time, Timers, ViewChange, ViewChangeKind};
use zerocopy::byteorder::big_endian::U32;

use super::packet_key::PacketKey;
use super::repair_store::RepairStore;
use crate::reception::Reception;
use crate::round_trips::{RoundTrips, Timeouts};
use crate::shell::Context;
use crate::stream::Gap;

#[derive(Debug)]
pub(crate) struct Naks {
    timeouts: Timeouts,
    /// Repair times by group and target. A slow head must not delay requests to the next.
    round_trips: BTreeMap<(GroupId, NodeId), RoundTrips>,
    tries: BTreeMap<PacketKey, Attempts>,
    timers: Timers<PacketKey>,
}

#[derive(Clone, Debug, Default)]
struct Attempts {
    count: u32,
    /// Requests by target, the latest last. The targets are the few nodes above this node.
    requests: Vec<Request>,
    /// Number of times since the latest request at which no parent was in the view.
    unasked: u32,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    to: NodeId,
    /// Number of requests to the same node after the first one.
    again: u32,
    first: Time,
}

impl Attempts {
    fn of(&self, node: NodeId) -> u32 {
        self.requests.iter().find(|it| it.to == node).map_or(0, |it| it.again + 1)
    }

    /// Records a request to the node. Returns the number of earlier requests to it.
    fn ask(&mut self, node: NodeId, now: Time) -> u32 {
        self.count += 1;
        self.unasked = 0;
        match self.requests.iter().position(|it| it.to == node) {
            Some(place) => {
                let request = self.requests.remove(place);
                self.requests.push(Request { again: request.again + 1, ..request });
            }
            None => self.requests.push(Request { to: node, again: 0, first: now }),
        }
        self.of(node) - 1
    }

    /// Returns the time that the repair by `from` took, if it is known.
    ///
    /// After two requests to the same node, it is unknown which of them the repair answers (Karn).
    /// If a request to another node followed, the node is known to be slow, and the longest
    /// possible time counts. The result is at most twice the time for which the node was waited
    /// for, because the node may have lacked the packet itself.
    fn round_trip(&self, from: NodeId, now: Time) -> Option<Duration> {
        let place = self.requests.iter().position(|it| it.to == from)?;
        let request = self.requests[place];
        let took = now.since(request.first);
        match self.requests.get(place + 1) {
            None => (request.again == 0).then_some(took),
            Some(next) => {
                // It is 0, that is, unknown, if the first request to the next node was earlier.
                let waited = next.first.since(request.first);
                (!waited.is_zero()).then(|| took.min(waited * 2))
            }
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Nak {
    pub(crate) group: GroupId,
    pub(crate) source: NodeId,
    pub(crate) to: Option<NodeId>,
    pub(crate) seqnos: Vec<U32>,
}

impl Naks {
    pub(crate) fn new(timeouts: Timeouts) -> Self {
        let (round_trips, tries) = (BTreeMap::new(), BTreeMap::new());
        Self { timeouts, round_trips, tries, timers: Timers::new() }
    }

    fn add(&mut self, id: PacketId, at: Time) {
        let key = PacketKey::of(id);
        self.tries.insert(key, Attempts::default());
        self.timers.set(key, at);
    }

    /// Schedules requests for the missing packets at `at`, and cancels those for lost packets.
    pub(crate) fn add_gap(
        &mut self,
        reception: &Reception,
        (group, source): (GroupId, NodeId),
        gap: &Gap,
        at: Time,
    ) {
        if !gap.lost.is_empty() {
            self.drop_settled(group, source, |id| reception.is_missing(id));
        }
        for seqno in &gap.missing {
            self.add(PacketId { sender: source, group, seqno: *seqno }, at);
        }
    }

    /// Cancels the requests for a packet that arrived late or was repaired by `from`.
    pub(crate) fn settle(&mut self, now: Time, id: PacketId, from: Option<NodeId>) {
        let key = PacketKey::of(id);
        let Some(tries) = self.tries.remove(&key) else { return };
        self.timers.cancel(key);
        if let Some(from) = from
            && let Some(round_trip) = tries.round_trip(from, now)
            && let Some(measured) = self.round_trips.get_mut(&(id.group, from))
        {
            measured.measure(round_trip.min(self.timeouts.most));
        }
    }

    /// Postpones this member's request, because another member has requested the packet from `of`.
    /// The new time is the expected arrival of the repair plus `spread`.
    ///
    /// Returns `true` if a request was postponed. A request to a node other than `of` is not.
    pub(crate) fn postpone(
        &mut self,
        now: Time,
        id: PacketId,
        of: NodeId,
        spread: Duration,
    ) -> bool {
        let key = PacketKey::of(id);
        let Some(tries) = self.tries.get(&key) else { return false };
        if tries.requests.last().is_some_and(|last| last.to != of) {
            return false;
        }
        let wait = self.wait((id.group, of), tries.of(of));
        self.timers.set_no_earlier(key, now + wait + spread)
    }

    fn wait(&self, asked: (GroupId, NodeId), tries: u32) -> Duration {
        let Some(round_trips) = self.round_trips.get(&asked) else { return self.timeouts.initial };
        let wait = round_trips.timeout_after(tries, &self.timeouts);
        wait.max(round_trips.timeout(&self.timeouts))
    }

    fn drop_settled(
        &mut self,
        group: GroupId,
        source: NodeId,
        is_missing: impl Fn(PacketId) -> bool,
    ) {
        let of_source = self.tries.range(PacketKey::of_source(group, source)).map(|(key, _)| *key);
        let settled: Vec<PacketKey> = of_source.filter(|key| !is_missing(key.id())).collect();
        for key in settled {
            self.tries.remove(&key);
            self.timers.cancel(key);
        }
    }

    pub(crate) fn leave(&mut self, group: GroupId) {
        self.round_trips.retain(|(of, _), _| *of != group);
        self.tries.retain(|key, _| {
            let is_left = key.group == group;
            if is_left {
                self.timers.cancel(*key);
            }
            !is_left
        });
    }

    /// Applies a view change. Discards the measurements of the node, which do not predict its later
    /// repairs. After a join, packets without a parent are requested soon.
    pub(crate) fn handle_view(&mut self, now: Time, change: &ViewChange) {
        self.round_trips.remove(&(change.group, change.node));
        for (key, tries) in self.tries.range_mut(PacketKey::of_group(change.group)) {
            tries.requests.retain(|request| request.to != change.node);
            if tries.unasked > 0 && change.kind == ViewChangeKind::Joined {
                tries.unasked = 0;
                self.timers.set_no_later(*key, now + self.timeouts.initial);
            }
        }
    }

    pub(crate) fn due(&mut self, cx: &Context, store: &RepairStore, climb_after: u32) -> Vec<Nak> {
        let parent = |group, source, tries| store.parent(cx, group, source, tries / climb_after);
        self.pop_due(cx.now, |id| cx.reception.is_missing(id), parent)
    }

    /// Returns the packets that are due for a request. `parent` maps the group, the source and the
    /// number of earlier requests to the target. Packets without a target are also retried later.
    fn pop_due(
        &mut self,
        now: Time,
        is_missing: impl Fn(PacketId) -> bool,
        parent: impl Fn(GroupId, NodeId, u32) -> Option<NodeId>,
    ) -> Vec<Nak> {
        let mut due: BTreeMap<(GroupId, NodeId, Option<NodeId>), Vec<U32>> = BTreeMap::new();
        while let Some(key) = self.timers.pop_due(now) {
            let Some(tries) = self.tries.get_mut(&key) else { continue };
            if !is_missing(key.id()) {
                self.tries.remove(&key);
                continue;
            }
            let of = parent(key.group, key.source, tries.count);
            due.entry((key.group, key.source, of)).or_default().push(U32::new(key.seqno));
            let Some(to) = of else {
                let wait = RoundTrips::default().timeout_after(tries.unasked, &self.timeouts);
                tries.unasked = tries.unasked.saturating_add(1);
                self.timers.set(key, now + wait);
                continue;
            };
            let again = tries.ask(to, now);
            self.round_trips.entry((key.group, to)).or_default().back_off(again);
            self.timers.set(key, now + self.wait((key.group, to), again));
        }
        let naks = due.into_iter();
        naks.map(|((group, source, to), seqnos)| Nak { group, source, to, seqnos }).collect()
    }

    pub(crate) fn next_due(&self) -> Option<Time> {
        self.timers.next_due()
    }

    fn is_requested(&self, id: PacketId) -> bool {
        self.tries.contains_key(&PacketKey::of(id))
    }

    pub(crate) fn check_requested(&self, reception: &Reception) {
        for group in reception.groups() {
            let joined = reception.group(group).expect("it is one of them");
            for (source, stream) in joined.streams() {
                let id = |seqno| PacketId { sender: source, group, seqno };
                let are_requested = stream.missing().all(|seqno| self.is_requested(id(seqno)));
                assert!(are_requested, "a missing packet is not requested");
            }
        }
    }

    pub(crate) fn check(&self) {
        assert!(self.tries.keys().copied().eq(self.timers.keys()), "a request has no timer");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom_proto::SeqNo;

    const TIMEOUTS: Timeouts = Timeouts {
        initial: Duration::from_nanos(40),
        least: Duration::from_nanos(10),
        most: Duration::from_nanos(1000),
    };

    fn id(source: u64, seqno: u32) -> PacketId {
        PacketId { sender: NodeId(source), group: GroupId(1), seqno: SeqNo(seqno) }
    }

    /// Returns the nodes and packets that are due. Packet 9 is not missing. For source 3, the first
    /// two requests go to its head 30. Source 4 has left.
    fn due(naks: &mut Naks, now: u64) -> Vec<(u64, Vec<u32>)> {
        let parent = |_, NodeId(source), tries| match source {
            3 if tries < 2 => Some(NodeId(30)),
            4 => None,
            _ => Some(NodeId(source)),
        };
        let asked = naks.pop_due(Time(now), |id| id.seqno.0 != 9, parent);
        naks.check();
        let numbers = |all: Vec<U32>| all.into_iter().map(U32::get).collect();
        asked.into_iter().map(|it| (it.to.map_or(0, |to| to.0), numbers(it.seqnos))).collect()
    }

    fn asked_in_vain(source: u64, requests: &[(u64, u64)]) -> Naks {
        let mut naks = Naks::new(TIMEOUTS);
        naks.add(id(source, 0), Time(0));
        for (of, at) in requests {
            assert_eq!(due(&mut naks, *at), [(*of, vec![0])]);
        }
        naks
    }

    #[test]
    fn missing_packets_are_requested_together_and_again() {
        let mut naks = Naks::new(TIMEOUTS);
        for id in [id(1, 1), id(1, 2), id(2, 1), id(1, 9)] {
            naks.add(id, Time(5));
        }
        assert_eq!(due(&mut naks, 4), []);
        assert_eq!(due(&mut naks, 5), [(1, vec![1, 2]), (2, vec![1])]);
        naks.settle(Time(6), id(1, 1), None);
        naks.add(id(1, 3), Time(12));
        assert_eq!(due(&mut naks, 45), [(1, vec![3, 2]), (2, vec![1])]);
        assert!(naks.postpone(Time(50), id(1, 2), NodeId(1), Duration::from_nanos(5)));
        assert!(!naks.postpone(Time(50), id(1, 1), NodeId(1), Duration::ZERO));
        assert_eq!(due(&mut naks, 125), [(1, vec![3]), (2, vec![1])]);
        assert_eq!(due(&mut naks, 214), [(1, vec![3])], "the other request is postponed");
        assert_eq!(due(&mut naks, 215), [(1, vec![2])]);
        naks.drop_settled(GroupId(1), NodeId(1), |id| id.seqno.0 == 2);
        assert!(naks.is_requested(id(1, 2)) && !naks.is_requested(id(1, 3)));
        naks.leave(GroupId(1));
        assert_eq!((due(&mut naks, 900), naks.next_due()), (Vec::new(), None));
    }

    #[test]
    fn the_wait_follows_how_long_repairs_take_and_doubles_in_vain() {
        let repaired = Some(NodeId(1));
        // It is unknown which of the requests the late repair answers.
        let mut naks = asked_in_vain(1, &[(1, 0), (1, 40), (1, 120)]);
        naks.settle(Time(130), id(1, 0), repaired);
        naks.add(id(1, 1), Time(200));
        assert_eq!(due(&mut naks, 200), [(1, vec![1])]);
        assert_eq!(naks.next_due(), Some(Time(360)), "as long as the last wait in vain");
        naks.settle(Time(300), id(1, 1), repaired);
        naks.add(id(1, 2), Time(400));
        assert_eq!(due(&mut naks, 400), [(1, vec![2])]);
        assert_eq!(naks.next_due(), Some(Time(700)), "100 and four times its deviation of 50");
        naks.settle(Time(401), id(1, 2), None);
        for (seqno, from) in [(3, None), (4, Some(NodeId(7)))] {
            let at = Time(1000 * u64::from(seqno));
            naks.add(id(1, seqno), at);
            assert_eq!(due(&mut naks, at.0), [(1, vec![seqno])]);
            let again = Some(at + Duration::from_nanos(300));
            assert_eq!(naks.next_due(), again, "it repaired nothing, so no time is measured");
            naks.settle(at, id(1, seqno), from);
        }
    }

    #[test]
    fn silent_head_delays_no_request_to_another_node() {
        let mut naks = Naks::new(TIMEOUTS);
        let mut lose = |seqno, at: u64| {
            naks.add(id(3, seqno), Time(at));
            let mut asked = Vec::new();
            while asked.last().is_none_or(|(of, _)| *of == 30) {
                let now = naks.next_due().expect("it is missing");
                let [(of, _)] = due(&mut naks, now.0)[..] else { panic!("one request is due") };
                asked.push((of, now.0 - at));
            }
            let now = naks.next_due().expect("it is missing");
            naks.settle(Time(at + 200), id(3, seqno), Some(NodeId(3)));
            (asked, now.0 - at)
        };
        assert_eq!(lose(0, 0), (vec![(30, 0), (30, 40), (3, 120)], 160), "as long as for the head");
        // The head gets twice the time, as at the previous loss. The source needed 80.
        assert_eq!(lose(1, 1000), (vec![(30, 0), (30, 80), (3, 160)], 160 + 80 + 4 * 40));
    }

    #[test]
    fn late_answer_of_a_head_lengthens_the_wait_at_the_next_loss() {
        let mut naks = asked_in_vain(3, &[(30, 0), (30, 40), (3, 120)]);
        naks.settle(Time(130), id(3, 0), Some(NodeId(30)));
        naks.add(id(3, 1), Time(1000));
        assert_eq!(due(&mut naks, 1000), [(30, vec![1])]);
        assert_eq!(naks.next_due(), Some(Time(1000 + 130 + 4 * 65)));
    }

    #[test]
    fn head_that_got_a_packet_late_is_not_considered_slow() {
        let mut naks = asked_in_vain(3, &[(30, 0), (30, 40), (3, 120)]);
        naks.settle(Time(1_000_000), id(3, 0), Some(NodeId(30)));
        for seqno in 10..30 {
            naks.add(id(3, seqno), Time(2_000_000));
            assert_eq!(due(&mut naks, 2_000_000), [(30, vec![seqno])]);
            naks.settle(Time(2_000_020), id(3, seqno), Some(NodeId(30)));
        }
        naks.add(id(3, 30), Time(3_000_000));
        assert_eq!(due(&mut naks, 3_000_000), [(30, vec![30])]);
        let wait = naks.next_due().expect("it is missing").0 - 3_000_000;
        assert!(wait < 200, "{wait}: it answered after 20 each time");
    }

    #[test]
    fn ambiguous_answer_after_repeated_requests_is_not_measured() {
        let mut naks = Naks::new(TIMEOUTS);
        let ask = |naks: &mut Naks, at, of| {
            let asked = naks.pop_due(Time(at), |_| true, |_, _, _| Some(NodeId(of)));
            assert_eq!(asked.len(), 1);
            naks.next_due().expect("it is missing").0 - at
        };
        naks.add(id(1, 0), Time(0));
        for (at, of) in [(0, 5), (40, 6), (80, 5)] {
            ask(&mut naks, at, of);
        }
        naks.settle(Time(90), id(1, 0), Some(NodeId(6)));
        naks.add(id(1, 1), Time(1000));
        assert_eq!(ask(&mut naks, 1000, 6), 40, "nothing is measured");
    }

    #[test]
    fn how_long_a_head_was_away_is_no_round_trip() {
        let mut naks = asked_in_vain(1, &[(1, 0)]);
        for kind in [ViewChangeKind::Failed, ViewChangeKind::Joined] {
            let (group, node) = (GroupId(1), NodeId(1));
            naks.handle_view(Time(500), &ViewChange { group, node, kind, version: 1 });
        }
        naks.settle(Time(900), id(1, 0), Some(NodeId(1)));
        naks.add(id(1, 1), Time(1000));
        assert_eq!(due(&mut naks, 1000), [(1, vec![1])]);
        assert_eq!(naks.next_due(), Some(Time(1040)));
    }

    #[test]
    fn request_of_another_node_does_not_hasten_a_retry() {
        let mut naks = asked_in_vain(3, &[(30, 0), (30, 40)]);
        // Meanwhile, the head has answered another request earlier than this node expects.
        naks.add(id(3, 1), Time(41));
        assert_eq!(due(&mut naks, 41).len(), 1);
        naks.settle(Time(43), id(3, 1), Some(NodeId(30)));
        let again = naks.next_due();
        assert_eq!(again, Some(Time(120)));
        assert!(!naks.postpone(Time(50), id(3, 0), NodeId(30), Duration::ZERO));
        assert_eq!(naks.next_due(), again);
    }

    #[test]
    fn requests_to_a_given_up_head_do_not_delay_a_member() {
        let mut naks = asked_in_vain(3, &[(30, 0), (30, 40), (3, 120)]);
        let again = naks.next_due();
        assert!(!naks.postpone(Time(150), id(3, 0), NodeId(30), Duration::ZERO));
        assert_eq!(naks.next_due(), again);
        assert!(naks.postpone(Time(150), id(3, 0), NodeId(3), Duration::ZERO));
    }

    #[test]
    fn node_without_a_head_requests_when_a_member_joins() {
        let mut naks = asked_in_vain(4, &[(0, 0), (0, 40), (0, 120), (0, 280)]);
        assert_eq!(naks.next_due(), Some(Time(600)));
        let (group, node, version) = (GroupId(1), NodeId(4), 1);
        for (kind, then) in [(ViewChangeKind::Failed, 600), (ViewChangeKind::Joined, 340)] {
            naks.handle_view(Time(300), &ViewChange { group, node, kind, version });
            assert_eq!(naks.next_due(), Some(Time(then)));
        }
    }

    #[test]
    fn attempts_without_a_target_do_not_change_the_timeout() {
        let mut naks = asked_in_vain(4, &[(0, 0), (0, 40), (0, 120), (0, 280)]);
        naks.add(id(1, 0), Time(290));
        assert_eq!(due(&mut naks, 290), [(1, vec![0])]);
        assert_eq!(due(&mut naks, 330), [(1, vec![0])], "after the first wait");
    }
}

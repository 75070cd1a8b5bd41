//! Requests of other nodes, which are gathered until the packet is repaired.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use carom_proto::{GroupId, NodeId, PacketId, Time, Timers};

use super::packet_key::PacketKey;

#[derive(Debug)]
pub(super) struct Requests {
    entries: BTreeMap<PacketKey, Entry>,
    timers: Timers<PacketKey>,
    terms: RequestTerms,
    counters: Counters,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct RequestTerms {
    pub(super) gather_for: Duration,
    pub(super) hold_down: Duration,
    /// Time for which requests are kept if this node lacks the packet too.
    pub(super) give_up_after: Duration,
}

#[derive(Debug, Default)]
struct Entry {
    waiting: BTreeSet<NodeId>,
    /// Nodes that received a repair, each with the end of its hold-down.
    served: BTreeMap<NodeId, Time>,
    /// Multicasts that carried a repair, and the end of their receivers' hold-down.
    multicast: BTreeMap<GroupId, Time>,
    requests: u64,
    copies: u64,
}

carom_proto::counters! {
    struct Counters {
        requests_received,
        held_down = "requests_held_down",
        refused = "requests_refused",
        unanswered = "requests_unanswered",
        most_requests = "most_requests_of_one",
        most_copies = "most_copies_of_one",
    }
}

const MAX_ENTRIES: usize = 1 << 16;

impl Requests {
    pub(super) fn new(terms: RequestTerms) -> Self {
        let (timers, counters) = (Timers::new(), Counters::default());
        Self { entries: BTreeMap::new(), timers, terms, counters }
    }

    pub(super) fn request(
        &mut self,
        now: Time,
        id: PacketId,
        whom: NodeId,
        is_here: bool,
        hears: impl Fn(GroupId) -> bool,
    ) {
        self.counters.requests_received += 1;
        let key = PacketKey::of(id);
        if self.entries.len() >= MAX_ENTRIES && !self.entries.contains_key(&key) {
            self.counters.refused += 1;
            return;
        }
        let entry = self.entries.entry(key).or_default();
        entry.requests += 1;
        self.counters.most_requests = self.counters.most_requests.max(entry.requests);
        let until = entry.served.get(&whom).copied().unwrap_or_default();
        let mut multicast = entry.multicast.iter();
        if until > now || multicast.any(|(scope, until)| *until > now && hears(*scope)) {
            self.counters.held_down += 1;
            return;
        }
        entry.waiting.insert(whom);
        let wait = if is_here { self.terms.gather_for } else { self.terms.give_up_after };
        self.timers.set_no_later(key, now + wait);
    }

    pub(super) fn arrived(&mut self, now: Time, id: PacketId) {
        let key = PacketKey::of(id);
        if self.entries.get(&key).is_some_and(|entry| !entry.waiting.is_empty()) {
            self.timers.set(key, now);
        }
    }

    pub(super) fn pop_due(&mut self, now: Time) -> Option<(PacketId, BTreeSet<NodeId>)> {
        loop {
            let key = self.timers.pop_due(now)?;
            let Some(entry) = self.entries.get_mut(&key) else { continue };
            let waiting = core::mem::take(&mut entry.waiting);
            if !waiting.is_empty() {
                self.timers.set(key, now + self.terms.hold_down);
                return Some((key.id(), waiting));
            }
            self.entries.remove(&key);
        }
    }

    pub(super) fn served(
        &mut self,
        now: Time,
        id: PacketId,
        nodes: BTreeSet<NodeId>,
        multicast: &[GroupId],
    ) {
        let key = PacketKey::of(id);
        if self.entries.len() >= MAX_ENTRIES && !self.entries.contains_key(&key) {
            return;
        }
        let entry = self.entries.entry(key).or_default();
        entry.copies += (nodes.len() + multicast.len()) as u64;
        self.counters.most_copies = self.counters.most_copies.max(entry.copies);
        let until = now + self.terms.hold_down;
        entry.served.extend(nodes.into_iter().map(|node| (node, until)));
        entry.multicast.extend(multicast.iter().map(|scope| (*scope, until)));
        self.timers.set(key, until);
    }

    pub(super) fn unanswered(&mut self, id: PacketId) {
        self.counters.unanswered += 1;
        let key = PacketKey::of(id);
        self.entries.remove(&key);
        self.timers.cancel(key);
    }

    pub(super) fn leave(&mut self, group: GroupId) {
        self.entries.retain(|key, _| {
            let is_left = key.group == group;
            if is_left {
                self.timers.cancel(*key);
            }
            !is_left
        });
    }

    pub(super) fn next_due(&self) -> Option<Time> {
        self.timers.next_due()
    }

    pub(super) fn by_name(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.counters.by_name()
    }

    pub(super) fn check(&self) {
        assert!(self.entries.keys().copied().eq(self.timers.keys()), "a request has no timer");
        assert!(self.entries.len() <= MAX_ENTRIES, "too many requests are kept");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom_proto::SeqNo;

    fn id(seqno: u32) -> PacketId {
        PacketId { sender: NodeId(9), group: GroupId(1), seqno: SeqNo(seqno) }
    }

    fn requests() -> Requests {
        let nanos = Duration::from_nanos;
        let (gather_for, hold_down, give_up_after) = (nanos(5), nanos(20), nanos(100));
        Requests::new(RequestTerms { gather_for, hold_down, give_up_after })
    }

    fn request(requests: &mut Requests, now: Time, id: PacketId, whom: u64, is_here: bool) {
        requests.request(now, id, NodeId(whom), is_here, |scope| scope.0 == 7 && whom > 2);
    }

    fn due(requests: &mut Requests, now: u64) -> Vec<(u32, Vec<u64>)> {
        let due = core::iter::from_fn(|| requests.pop_due(Time(now)));
        let due = due.map(|(id, whom)| (id.seqno.0, whom.into_iter().map(|it| it.0).collect()));
        let due = due.collect();
        requests.check();
        due
    }

    #[test]
    fn requests_are_gathered_and_those_on_the_way_ignored() {
        let mut requests = requests();
        request(&mut requests, Time(0), id(1), 1, true);
        request(&mut requests, Time(3), id(1), 2, true);
        assert_eq!(due(&mut requests, 4), []);
        assert_eq!(due(&mut requests, 5), [(1, vec![1, 2])]);
        requests.served(Time(5), id(1), [NodeId(1), NodeId(2)].into(), &[]);
        request(&mut requests, Time(8), id(1), 1, true);
        request(&mut requests, Time(8), id(1), 3, true);
        assert_eq!(due(&mut requests, 13), [(1, vec![3])], "only the other node is served");
        requests.served(Time(13), id(1), BTreeSet::new(), &[GroupId(7)]);
        request(&mut requests, Time(20), id(1), 4, true);
        assert_eq!((due(&mut requests, 33), requests.next_due()), (vec![], None));
        request(&mut requests, Time(34), id(1), 4, true);
        assert_eq!(due(&mut requests, 39), [(1, vec![4])]);
        let named: Vec<_> = requests.by_name().collect();
        assert_eq!(named[..2], [("requests_received", 6), ("requests_held_down", 2)]);
        assert_eq!(named[4..], [("most_requests_of_one", 5), ("most_copies_of_one", 3)]);
    }

    #[test]
    fn absent_packet_is_served_on_arrival_or_given_up() {
        let mut requests = requests();
        request(&mut requests, Time(0), id(1), 1, false);
        request(&mut requests, Time(0), id(2), 1, false);
        assert_eq!(due(&mut requests, 50), []);
        requests.arrived(Time(60), id(1));
        requests.arrived(Time(60), id(3));
        assert_eq!(due(&mut requests, 60), [(1, vec![1])]);
        assert_eq!(due(&mut requests, 100), [(2, vec![1])]);
        requests.unanswered(id(2));
        requests.check();
        assert_eq!(requests.by_name().nth(3), Some(("requests_unanswered", 1)));
        requests.leave(GroupId(1));
        assert_eq!(requests.next_due(), None);
    }
}

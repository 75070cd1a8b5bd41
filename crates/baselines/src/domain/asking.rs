//! What a member asks for, and when again.

use core::time::Duration;
use std::collections::BTreeMap;

use carom_proto::{GroupId, NodeId, PacketId, SeqNo, Time, Timers};

use super::PacketKey;
use crate::reception::Reception;
use crate::round_trips::{RoundTrips, Timeouts};
use crate::stream::Gap;

/// Packets that are missing, each with the time at which it is asked for.
#[derive(Debug)]
pub(crate) struct Asking {
    timeouts: Timeouts,
    /// How long repairs take in each group in which any was asked for.
    round_trips: BTreeMap<GroupId, RoundTrips>,
    tries: BTreeMap<PacketKey, Tries>,
    timers: Timers<PacketKey>,
}

/// How a packet was asked for.
#[derive(Clone, Copy, Debug, Default)]
struct Tries {
    /// How often.
    count: u32,
    /// When last.
    last: Time,
}

/// Packets of one source that are asked for together.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) group: GroupId,
    pub(crate) source: NodeId,
    /// How often these were asked for before this.
    pub(crate) tries: u32,
    pub(crate) seqnos: Vec<SeqNo>,
}

impl Asking {
    /// Asks for a packet again after these times.
    pub(crate) fn new(timeouts: Timeouts) -> Self {
        let (round_trips, tries) = (BTreeMap::new(), BTreeMap::new());
        Self { timeouts, round_trips, tries, timers: Timers::new() }
    }

    /// Asks for a packet at `at`.
    pub(crate) fn add(&mut self, id: PacketId, at: Time) {
        let key = PacketKey::of(id);
        self.tries.insert(key, Tries::default());
        self.timers.set(key, at);
    }

    /// Asks at `at` for what was found to be missing of a source, and no more for what is lost.
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

    /// The packet came, as a repair or late, and is not asked for any more.
    pub(crate) fn settle(&mut self, now: Time, id: PacketId, is_repair: bool) {
        let key = PacketKey::of(id);
        let Some(tries) = self.tries.remove(&key) else { return };
        self.timers.cancel(key);
        // Whoever asked twice cannot tell which request is answered.
        if is_repair && tries.count == 1 {
            self.round_trips.entry(id.group).or_default().measure(now.since(tries.last));
        }
    }

    /// Somebody else has asked for the packet: this member does when the repair would have come
    /// to itself, and `spread` later, at the earliest. Whether it was about to.
    pub(crate) fn put_off(&mut self, now: Time, id: PacketId, spread: Duration) -> bool {
        let key = PacketKey::of(id);
        let Some(tries) = self.tries.get(&key) else { return false };
        let wait = self.wait(id.group, tries.count);
        self.timers.set(key, now + wait + spread);
        true
    }

    /// How long the repair is waited for of a packet that was asked for so often before.
    fn wait(&self, group: GroupId, tries: u32) -> Duration {
        let Some(round_trips) = self.round_trips.get(&group) else { return self.timeouts.initial };
        let wait = round_trips.timeout_after(tries, &self.timeouts);
        wait.max(round_trips.timeout(&self.timeouts))
    }

    /// Does not ask any more for what is not missing any more of a source.
    pub(crate) fn drop_settled(
        &mut self,
        group: GroupId,
        source: NodeId,
        is_missing: impl Fn(PacketId) -> bool,
    ) {
        let of_source = PacketKey::of_source(group, source);
        let is_settled = |key: &PacketKey, _: &mut Tries| !is_missing(key.id());
        for (key, _) in self.tries.extract_if(of_source, is_settled) {
            self.timers.cancel(key);
        }
    }

    /// This node is no longer in the group.
    pub(crate) fn leave(&mut self, group: GroupId) {
        self.round_trips.remove(&group);
        for (key, _) in self.tries.extract_if(PacketKey::of_group(group), |_, _| true) {
            self.timers.cancel(key);
        }
    }

    /// What is to be asked for now, and is missing still.
    pub(crate) fn pop_due(
        &mut self,
        now: Time,
        is_missing: impl Fn(PacketId) -> bool,
    ) -> Vec<Asked> {
        let mut due: BTreeMap<(GroupId, NodeId, u32), Vec<SeqNo>> = BTreeMap::new();
        while let Some(key) = self.timers.pop_due(now) {
            let Some(tries) = self.tries.get_mut(&key) else { continue };
            if !is_missing(key.id()) {
                self.tries.remove(&key);
                continue;
            }
            let count = tries.count;
            *tries = Tries { count: count + 1, last: now };
            due.entry((key.group, key.source, count)).or_default().push(SeqNo(key.seqno));
            self.round_trips.entry(key.group).or_default().back_off(count);
            self.timers.set(key, now + self.wait(key.group, count));
        }
        let asked = due.into_iter();
        asked
            .map(|((group, source, tries), seqnos)| Asked { group, source, tries, seqnos })
            .collect()
    }

    /// When something is to be asked for.
    pub(crate) fn next_due(&self) -> Option<Time> {
        self.timers.next_due()
    }

    /// Whether the packet is asked for.
    pub(crate) fn asks(&self, id: PacketId) -> bool {
        self.tries.contains_key(&PacketKey::of(id))
    }

    /// Asserts that all that is missing is asked for.
    pub(crate) fn check_asked(&self, reception: &Reception) {
        for group in reception.groups() {
            let joined = reception.group(group).expect("it is one of them");
            for (source, stream) in joined.streams() {
                let id = |seqno| PacketId { sender: source, group, seqno };
                let is_asked = stream.missing().all(|seqno| self.asks(id(seqno)));
                assert!(is_asked, "a packet is missing that nobody is asked for");
            }
        }
    }

    /// Asserts the invariants.
    pub(crate) fn check(&self) {
        assert!(self.tries.keys().copied().eq(self.timers.keys()), "something waits for nothing");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUTS: Timeouts = Timeouts {
        initial: Duration::from_nanos(40),
        least: Duration::from_nanos(10),
        most: Duration::from_nanos(1000),
    };

    fn id(source: u64, seqno: u32) -> PacketId {
        PacketId { sender: NodeId(source), group: GroupId(1), seqno: SeqNo(seqno) }
    }

    fn due(asking: &mut Asking, now: u64) -> Vec<(u64, u32, Vec<u32>)> {
        let asked = asking.pop_due(Time(now), |id| id.seqno.0 != 9);
        asking.check();
        let numbers = |all: Vec<SeqNo>| all.into_iter().map(|seqno| seqno.0).collect();
        asked.into_iter().map(|it| (it.source.0, it.tries, numbers(it.seqnos))).collect()
    }

    #[test]
    fn what_is_missing_is_asked_for_together_and_again() {
        let mut asking = Asking::new(TIMEOUTS);
        for id in [id(1, 1), id(1, 2), id(2, 1), id(1, 9)] {
            asking.add(id, Time(5));
        }
        assert_eq!(due(&mut asking, 4), []);
        assert_eq!(due(&mut asking, 5), [(1, 0, vec![1, 2]), (2, 0, vec![1])]);
        asking.settle(Time(6), id(1, 1), false);
        asking.add(id(1, 3), Time(12));
        assert_eq!(due(&mut asking, 45), [(1, 0, vec![3]), (1, 1, vec![2]), (2, 1, vec![1])]);
        assert!(asking.put_off(Time(50), id(1, 2), Duration::from_nanos(5)));
        assert!(!asking.put_off(Time(50), id(1, 1), Duration::ZERO));
        assert_eq!(due(&mut asking, 125), [(1, 1, vec![3]), (2, 2, vec![1])]);
        assert_eq!(due(&mut asking, 214), [(1, 2, vec![3])], "the other one is put off");
        assert_eq!(due(&mut asking, 215), [(1, 2, vec![2])]);
        asking.drop_settled(GroupId(1), NodeId(1), |id| id.seqno.0 == 2);
        assert!(asking.asks(id(1, 2)) && !asking.asks(id(1, 3)));
        asking.leave(GroupId(1));
        assert_eq!((due(&mut asking, 900), asking.next_due()), (Vec::new(), None));
    }

    #[test]
    fn the_wait_follows_how_long_repairs_take_and_doubles_in_vain() {
        let mut asking = Asking::new(TIMEOUTS);
        // Asked for at 0, 40 and 120: the repair that comes at last does not tell of which.
        asking.add(id(1, 0), Time(0));
        for (tries, at) in (0..).zip([0, 40, 120]) {
            assert_eq!(due(&mut asking, at), [(1, tries, vec![0])]);
        }
        asking.settle(Time(130), id(1, 0), true);
        asking.add(id(1, 1), Time(200));
        assert_eq!(due(&mut asking, 200), [(1, 0, vec![1])]);
        assert_eq!(asking.next_due(), Some(Time(360)), "as long as the last wait in vain");
        asking.settle(Time(300), id(1, 1), true);
        asking.add(id(1, 2), Time(400));
        assert_eq!(due(&mut asking, 400), [(1, 0, vec![2])]);
        assert_eq!(asking.next_due(), Some(Time(700)), "100 and four times its deviation of 50");
        asking.settle(Time(401), id(1, 2), false);
        asking.add(id(1, 3), Time(800));
        assert_eq!(due(&mut asking, 800), [(1, 0, vec![3])]);
        assert_eq!(asking.next_due(), Some(Time(1100)), "no repair, and nothing measured");
    }
}

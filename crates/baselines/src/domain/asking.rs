//! What a member asks for, and when again.

use core::time::Duration;
use std::collections::BTreeMap;

use carom_proto::{GroupId, NodeId, PacketId, SeqNo, Time, Timers};

use super::PacketKey;
use crate::reception::Reception;
use crate::stream::Gap;

/// Packets that are missing, each with the time at which it is asked for.
#[derive(Debug, Default)]
pub(crate) struct Asking {
    /// How often each was asked for.
    tries: BTreeMap<PacketKey, u32>,
    timers: Timers<PacketKey>,
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
    /// Asks for a packet at `at`.
    pub(crate) fn add(&mut self, id: PacketId, at: Time) {
        let key = PacketKey::of(id);
        self.tries.insert(key, 0);
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

    /// The packet is not asked for any more.
    pub(crate) fn settle(&mut self, id: PacketId) {
        let key = PacketKey::of(id);
        if self.tries.remove(&key).is_some() {
            self.timers.cancel(key);
        }
    }

    /// Somebody else has asked for the packet: this member does at `at` at the earliest. Whether
    /// it was about to.
    pub(crate) fn put_off(&mut self, id: PacketId, at: Time) -> bool {
        let key = PacketKey::of(id);
        let is_asked = self.tries.contains_key(&key);
        if is_asked {
            self.timers.set(key, at);
        }
        is_asked
    }

    /// Does not ask any more for what is not missing any more of a source.
    pub(crate) fn drop_settled(
        &mut self,
        group: GroupId,
        source: NodeId,
        is_missing: impl Fn(PacketId) -> bool,
    ) {
        let of_source = PacketKey::of_source(group, source);
        let is_settled = |key: &PacketKey, _: &mut u32| !is_missing(key.id());
        for (key, _) in self.tries.extract_if(of_source, is_settled) {
            self.timers.cancel(key);
        }
    }

    /// This node is no longer in the group.
    pub(crate) fn leave(&mut self, group: GroupId) {
        for (key, _) in self.tries.extract_if(PacketKey::of_group(group), |_, _| true) {
            self.timers.cancel(key);
        }
    }

    /// What is to be asked for now, and is missing still. It is asked for again after `retry`.
    pub(crate) fn pop_due(
        &mut self,
        now: Time,
        retry: Duration,
        is_missing: impl Fn(PacketId) -> bool,
    ) -> Vec<Asked> {
        let mut due: BTreeMap<(GroupId, NodeId, u32), Vec<SeqNo>> = BTreeMap::new();
        while let Some(key) = self.timers.pop_due(now) {
            let Some(tries) = self.tries.get_mut(&key) else { continue };
            if !is_missing(key.id()) {
                self.tries.remove(&key);
                continue;
            }
            due.entry((key.group, key.source, *tries)).or_default().push(SeqNo(key.seqno));
            *tries += 1;
            self.timers.set(key, now + retry);
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

    const RETRY: Duration = Duration::from_nanos(10);

    fn id(source: u64, seqno: u32) -> PacketId {
        PacketId { sender: NodeId(source), group: GroupId(1), seqno: SeqNo(seqno) }
    }

    fn due(asking: &mut Asking, now: u64) -> Vec<(u64, u32, Vec<u32>)> {
        let asked = asking.pop_due(Time(now), RETRY, |id| id.seqno.0 != 9);
        asking.check();
        let numbers = |all: Vec<SeqNo>| all.into_iter().map(|seqno| seqno.0).collect();
        asked.into_iter().map(|it| (it.source.0, it.tries, numbers(it.seqnos))).collect()
    }

    #[test]
    fn what_is_missing_is_asked_for_together_and_again() {
        let mut asking = Asking::default();
        for id in [id(1, 1), id(1, 2), id(2, 1), id(1, 9)] {
            asking.add(id, Time(5));
        }
        assert_eq!(due(&mut asking, 4), []);
        assert_eq!(due(&mut asking, 5), [(1, 0, vec![1, 2]), (2, 0, vec![1])]);
        asking.settle(id(1, 1));
        asking.add(id(1, 3), Time(12));
        assert_eq!(due(&mut asking, 15), [(1, 0, vec![3]), (1, 1, vec![2]), (2, 1, vec![1])]);
        assert!(asking.put_off(id(1, 2), Time(40)) && !asking.put_off(id(1, 1), Time(40)));
        assert_eq!(due(&mut asking, 30), [(1, 1, vec![3]), (2, 2, vec![1])]);
        asking.drop_settled(GroupId(1), NodeId(1), |id| id.seqno.0 == 2);
        assert!(asking.asks(id(1, 2)) && !asking.asks(id(1, 3)));
        asking.leave(GroupId(1));
        assert_eq!((due(&mut asking, 90), asking.next_due()), (Vec::new(), None));
    }
}

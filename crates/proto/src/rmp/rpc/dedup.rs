//! Requests from the perspective of one member (4.5): delivered requests, so that repetitions are
//! recognized, open requests, and kept replies. All of them are bounded.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use bytes::Bytes;

use crate::NodeId;
use crate::ring::{Handler, Process, RequestId};
use crate::rmp::seen::{Seen, Sight};

#[derive(Debug, Default)]
pub(crate) struct RequestTable {
    callers: BTreeMap<CallerStart, Caller>,
    /// Number of deliveries. The caller that was heard longest ago is forgotten first.
    clock: u64,
    kept: VecDeque<RequestId>,
    kept_bytes: usize,
    open_bytes: usize,
}

/// One incarnation of a caller. Each incarnation counts its requests from a different number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct CallerStart {
    node: NodeId,
    first: u32,
}

#[derive(Debug)]
struct Caller {
    used: u64,
    seen: Seen,
    entries: BTreeMap<u32, Entry>,
}

#[derive(Debug)]
pub(super) struct Entry {
    handler: Handler,
    payload: Option<Bytes>,
    /// `true` if another member held the handler's lock when the request was delivered.
    pub(super) was_held: bool,
    pub(super) is_reported: bool,
    pub(super) answered_by: Option<Process>,
    pub(super) reply: Option<Bytes>,
}

impl RequestTable {
    pub(super) fn seen(&self) -> Vec<(NodeId, Seen)> {
        let all = self.callers.iter();
        let mut callers: Vec<(u64, NodeId, Seen)> =
            all.map(|(start, caller)| (caller.used, start.node, caller.seen)).collect();
        callers.sort_unstable_by_key(|(used, node, _)| (*used, *node));
        callers.into_iter().map(|(_, node, seen)| (node, seen)).collect()
    }

    pub(crate) fn enter(&mut self, seen: Vec<(NodeId, Seen)>) {
        for (node, seen) in seen {
            self.clock += 1;
            let caller = Caller { used: self.clock, seen, entries: BTreeMap::new() };
            self.callers.insert(CallerStart { node, first: seen.base }, caller);
        }
    }

    pub(super) fn record(&mut self, id: RequestId, oldest: u32) -> Sight {
        self.clock += 1;
        let clock = self.clock;
        let new = CallerStart { node: id.caller, first: id.number };
        let known = self.key(id);
        if known.is_none() && self.callers.contains_key(&new) {
            // The incarnation with this number is far beyond it, and no caller goes back.
            return Sight::Impossible;
        }
        let key = known.unwrap_or(new);
        let caller = self.callers.entry(key).or_insert_with(|| Caller {
            used: clock,
            seen: Seen::before(oldest),
            entries: BTreeMap::new(),
        });
        caller.used = clock;
        caller.seen.forget_before(oldest);
        let mut sight = caller.seen.record(id.number);
        let is_kept = caller.entries.contains_key(&id.number);
        if sight == Sight::Again && !is_kept && caller.seen.is_over(id.number) {
            sight = Sight::Over;
        }
        let over: Vec<u32> = caller
            .entries
            .keys()
            .filter(|number| (number.wrapping_sub(oldest) as i32) < 0)
            .copied()
            .collect();
        for number in over {
            self.forget(RequestId { number, ..id });
        }
        while self.callers.len() > MAX_CALLERS {
            let oldest = self.callers.iter().min_by_key(|(_, caller)| caller.used);
            let Some((key, caller)) = oldest else { break };
            let (key, numbers) = (*key, caller.entries.keys().copied().collect::<Vec<_>>());
            let id = |number| RequestId { caller: key.node, number };
            numbers.into_iter().for_each(|number| self.forget(id(number)));
            self.callers.remove(&key);
        }
        sight
    }

    pub(super) fn on_answered(&mut self, id: RequestId, by: Process) {
        let Some(entry) = self.entry(id) else { return };
        entry.answered_by = Some(by);
        let payload = entry.payload.take();
        self.open_bytes -= payload.map_or(0, |payload| payload.len());
    }

    pub(super) fn keep(
        &mut self,
        id: RequestId,
        handler: Handler,
        payload: Bytes,
        limit: usize,
    ) -> &mut Entry {
        let has_room = self.open_bytes + payload.len() <= limit;
        let key = self.key(id);
        let caller =
            key.and_then(|key| self.callers.get_mut(&key)).expect("the request was recorded");
        let entry = caller.entries.entry(id.number).or_insert(Entry {
            handler,
            payload: None,
            was_held: false,
            is_reported: false,
            answered_by: None,
            reply: None,
        });
        if has_room && entry.payload.is_none() {
            self.open_bytes += payload.len();
            entry.payload = Some(payload);
        }
        entry
    }

    pub(super) fn entry(&mut self, id: RequestId) -> Option<&mut Entry> {
        let key = self.key(id)?;
        self.callers.get_mut(&key)?.entries.get_mut(&id.number)
    }

    fn key(&self, id: RequestId) -> Option<CallerStart> {
        let start = |first| CallerStart { node: id.caller, first };
        let mut starts = self.callers.range(start(0)..=start(u32::MAX));
        starts.find(|(_, caller)| caller.seen.is_of_same_start(id.number)).map(|(key, _)| *key)
    }

    fn forget(&mut self, id: RequestId) {
        let caller = self.key(id).and_then(|key| self.callers.get_mut(&key));
        let Some(entry) = caller.and_then(|caller| caller.entries.remove(&id.number)) else {
            return;
        };
        self.open_bytes -= entry.payload.map_or(0, |payload| payload.len());
        if let Some(reply) = entry.reply {
            self.kept_bytes -= reply.len();
            self.kept.retain(|kept| *kept != id);
        }
    }

    // Drops the oldest replies beyond `limit` bytes. Returns their number.
    pub(super) fn keep_reply(&mut self, id: RequestId, reply: Bytes, limit: usize) -> u64 {
        self.kept_bytes += reply.len();
        self.kept.push_back(id);
        if let Some(entry) = self.entry(id) {
            entry.reply = Some(reply);
        }
        let mut forgotten = 0;
        while self.kept_bytes > limit && self.kept.len() > 1 {
            let Some(oldest) = self.kept.pop_front() else { break };
            let reply = self.entry(oldest).and_then(|entry| entry.reply.take());
            self.kept_bytes -= reply.map_or(0, |reply| reply.len());
            forgotten += 1;
        }
        forgotten
    }

    pub(super) fn open(&self, handler: Handler) -> Vec<(RequestId, Bytes, bool)> {
        let entries = self.callers.iter().flat_map(|(start, it)| {
            it.entries
                .iter()
                .map(|(number, entry)| (RequestId { caller: start.node, number: *number }, entry))
        });
        let open = entries.filter(|(_, entry)| {
            entry.handler == handler && !entry.is_reported && entry.answered_by.is_none()
        });
        open.filter_map(|(id, entry)| Some((id, entry.payload.clone()?, entry.was_held))).collect()
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.open_bytes + self.kept_bytes
    }

    pub(crate) fn check(&self) {
        let entries = || self.callers.values().flat_map(|caller| caller.entries.values());
        let open = entries().filter_map(|entry| entry.payload.as_ref()).map(Bytes::len);
        assert_eq!(
            open.sum::<usize>(),
            self.open_bytes,
            "the bytes of open requests were miscounted"
        );
        let kept = entries().filter_map(|entry| entry.reply.as_ref()).map(Bytes::len);
        assert_eq!(
            kept.sum::<usize>(),
            self.kept_bytes,
            "the bytes of kept replies were miscounted"
        );
        assert!(self.callers.len() <= MAX_CALLERS, "{} callers", self.callers.len());
        for caller in self.callers.values() {
            assert!(caller.entries.len() <= 128, "{} requests", caller.entries.len());
        }
    }
}

const MAX_CALLERS: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_of_a_new_incarnation_is_new_under_any_number() {
        let mut table = RequestTable::default();
        let caller = NodeId(7);
        let mut record = |number| table.record(RequestId { caller, number }, number);
        assert_eq!([record(5), record(5), record(6)], [Sight::New, Sight::Again, Sight::New]);
        // Incarnations count from different numbers, and later ones may begin at smaller numbers.
        for first in [1 << 30, u32::MAX - (1 << 20)] {
            assert_eq!([record(first), record(first)], [Sight::New, Sight::Again]);
        }
        assert_eq!([record(6), record(7)], [Sight::Again, Sight::New]);
    }

    #[test]
    fn caller_that_goes_back_and_forth_keeps_the_bounds() {
        let mut table = RequestTable::default();
        let caller = NodeId(7);
        for number in [5, 30_005, 60_005, 5].into_iter().chain((0..500).map(|back| 60_000 - back)) {
            let id = RequestId { caller, number };
            if matches!(table.record(id, number), Sight::New | Sight::Again) {
                table.keep(id, Handler::new(0).expect("the handler exists"), Bytes::new(), 1 << 20);
            }
            table.check();
        }
    }
}

//! Data packets of one source: the paper's DataList, and the target of the OrderingQ (4.2).
//!
//! A stream is a window of slots. Packet numbers pass these boundaries in order:
//!
//! ```text
//!          base            ordered_to           the last received
//!  forgotten | has a place    | waits for one    |
//! ```
//!
//! In addition, everything before `delivered_to` was delivered. A packet is forgotten once it is
//! stable, its message has been delivered, and all packets of the message have places.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use bytes::Bytes;

use crate::SeqNo;
use crate::ring::{Handler, Qos};

#[derive(Debug)]
pub(crate) struct Stream {
    base: SeqNo,
    slots: VecDeque<Slot>,
    ordered_to: SeqNo,
    open_from: SeqNo,
    delivered_to: SeqNo,
    stable_to: SeqNo,
    unbroken_to: SeqNo,
    holes: usize,
    pub(super) held_bytes: usize,
}

#[derive(Debug, Default)]
struct Slot {
    data: Option<Data>,
    is_delivered: bool,
}

/// A data packet without its source and number.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub struct Data {
    /// Number of the message among those of its source.
    pub message: SeqNo,
    /// Delivery guarantee of the message.
    pub qos: Qos,
    /// Handler whose lock holder has to reply.
    pub handler: Option<Handler>,
    /// `true` for requests, replies and notices of replies, `false` for application messages.
    pub is_call: bool,
    /// `true` if the packet is the first of its message.
    pub is_first: bool,
    /// `true` if the packet is the last of its message.
    pub is_last: bool,
    /// `true` if the packet may wait to be ordered together with the next packets.
    pub may_wait: bool,
    /// Content of the fragment, or the whole message if it fits in one packet.
    #[cfg_attr(test, proptest(strategy = "crate::strategies::bytes()"))]
    pub payload: Bytes,
}

impl Data {
    /// Creates the only packet of an application message.
    pub fn whole(message: SeqNo, qos: Qos, payload: Bytes) -> Self {
        let (is_first, is_last) = (true, true);
        let (handler, is_call, may_wait) = (None, false, false);
        Self { message, qos, handler, is_call, is_first, is_last, may_wait, payload }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    New,
    Duplicate,
    TooFar,
}

/// Maximum number of slots of a stream. A message of 16 MiB has about 12,000 packets of 1500 bytes.
pub(crate) const MAX_SLOTS: usize = 32_768;

impl Stream {
    // Everything before `ordered_to` has its place, and everything before `base` is over.
    pub(crate) fn new(base: SeqNo, ordered_to: SeqNo) -> Self {
        let mut stream = Self {
            base,
            slots: VecDeque::new(),
            ordered_to: base,
            open_from: base,
            delivered_to: base,
            stable_to: base,
            unbroken_to: base,
            holes: 0,
            held_bytes: 0,
        };
        stream.order_to(ordered_to);
        stream
    }

    pub(crate) fn insert(&mut self, seqno: SeqNo, data: Data) -> Arrival {
        let place = seqno.distance_from(self.base);
        let Ok(place) = usize::try_from(place) else { return Arrival::Duplicate };
        if place >= MAX_SLOTS {
            return Arrival::TooFar;
        }
        self.reach(place + 1);
        let slot = &mut self.slots[place];
        if slot.data.is_some() {
            return Arrival::Duplicate;
        }
        self.held_bytes += data.payload.len();
        slot.data = Some(data);
        self.holes -= 1;
        if seqno == self.unbroken_to {
            self.extend_unbroken();
        }
        Arrival::New
    }

    pub(crate) fn packet(&self, seqno: SeqNo) -> Option<&Data> {
        self.slot(seqno)?.data.as_ref()
    }

    pub(crate) fn ordered_to(&self) -> SeqNo {
        self.ordered_to
    }

    pub(crate) fn received_to(&self) -> SeqNo {
        if self.unbroken_to.distance_from(self.ordered_to) >= 0 {
            return self.unbroken_to;
        }
        // Only a joiner can be missing packets that have a place.
        let from = self.place(self.ordered_to);
        let here = self.slots.iter().skip(from).take_while(|slot| slot.data.is_some());
        self.ordered_to.plus(here.count() as u32)
    }

    pub(crate) fn end(&self) -> SeqNo {
        self.base.plus(self.slots.len() as u32)
    }

    // Equals `ordered_to` if no message only partly has places.
    pub(crate) fn open_from(&self) -> SeqNo {
        self.open_from
    }

    // A joiner also needs the fragments of open messages.
    pub(crate) fn needed_from(&self) -> SeqNo {
        self.delivered_to.earlier(self.ordered_to)
    }

    pub(crate) fn missing(&self, from: SeqNo, to: SeqNo, limit: usize) -> Vec<SeqNo> {
        let from = from.later(self.unbroken_to);
        if !to.is_after(from) {
            return Vec::new();
        }
        let count = to.distance_from(from) as usize;
        let known = self.slots.iter().skip(self.place(from)).map(|slot| slot.data.is_some());
        let is_here = known.chain(core::iter::repeat(false)).take(count);
        // The limit ends the scan at the last hole of the window.
        let beyond = to.distance_from(self.end()).max(0) as usize;
        let absent = is_here.enumerate().filter(|(_, is_here)| !is_here);
        let numbers = absent.map(|(step, _)| from.plus(step as u32));
        numbers.take(limit.min(self.holes + beyond)).collect()
    }

    pub(crate) fn order_to(&mut self, to: SeqNo) {
        let count = to.distance_from(self.base).max(0) as usize;
        self.reach(count.min(MAX_SLOTS));
        while to.is_after(self.ordered_to) {
            let is_last = self.packet(self.ordered_to).is_some_and(|data| data.is_last);
            self.ordered_to = self.ordered_to.next();
            if is_last {
                self.open_from = self.ordered_to;
            }
        }
    }

    pub(crate) fn settle_to(&mut self, to: SeqNo) {
        self.stable_to = self.stable_to.later(to);
        self.forget();
    }

    pub(crate) fn may_have_early(&self, arrived: Option<SeqNo>) -> bool {
        let arrived = arrived.and_then(|seqno| self.packet(seqno));
        arrived.is_some_and(|data| data.qos == Qos::Unordered)
            || self.packet(self.delivered_to).is_some_and(|data| !data.qos.is_ordered())
    }

    pub(crate) fn take_early(&mut self, arrived: Option<SeqNo>) -> Vec<Data> {
        let mut early = Vec::new();
        if let Some(seqno) = arrived
            && self.packet(seqno).is_some_and(|data| data.qos == Qos::Unordered)
        {
            early.extend(self.take_whole_around(seqno));
        }
        while let Some(data) = self.packet(self.delivered_to) {
            if data.qos.is_ordered() {
                break;
            }
            let Some(whole) = self.take_whole_around(self.delivered_to) else { break };
            early.push(whole);
        }
        early
    }

    pub(crate) fn take_whole_around(&mut self, seqno: SeqNo) -> Option<Data> {
        let first = self.bound(seqno, |data| data.is_first, |at| at.minus(1))?;
        let last = self.bound(seqno, |data| data.is_last, |at| at.plus(1))?;
        let (from, to) = (self.place(first), self.place(last));
        if self.slots[from].is_delivered {
            return None;
        }
        let mut data = self.slots[to].data.clone().expect("the last fragment is held");
        if from < to {
            let pieces = self.slots.range(from..=to).filter_map(|slot| slot.data.as_ref());
            let pieces: Vec<&[u8]> = pieces.map(|data| &data.payload[..]).collect();
            (data.is_first, data.payload) = (true, pieces.concat().into());
        }
        self.slots.range_mut(from..=to).for_each(|slot| slot.is_delivered = true);
        while self.slot(self.delivered_to).is_some_and(|slot| slot.is_delivered) {
            self.delivered_to = self.delivered_to.next();
        }
        self.forget();
        Some(data)
    }

    pub(crate) fn head_of_call(&self, seqno: SeqNo) -> Option<Bytes> {
        self.ends_undelivered(seqno)?;
        let first = self.bound(seqno, |data| data.is_first, |at| at.minus(1))?;
        let data = self.packet(first).filter(|data| data.is_call)?;
        Some(data.payload.clone())
    }

    pub(crate) fn ends_undelivered(&self, seqno: SeqNo) -> Option<Qos> {
        let slot = self.slot(seqno)?;
        let data = slot.data.as_ref()?;
        (data.is_last && !slot.is_delivered).then_some(data.qos)
    }

    /// Gives up the message that was open when this member joined and is missing fragments. Returns
    /// `None` if there is no such message, and otherwise its number, if known.
    pub(crate) fn give_up_open(&mut self) -> Option<Option<SeqNo>> {
        let from = self.needed_from();
        let (start, end) = (self.place(from), self.place(self.ordered_to));
        let last_missing = (start..end).rev().find(|at| self.slots[*at].data.is_none())?;
        let after = self.slots.range(last_missing..end);
        let rest = after.take_while(|slot| !slot.data.as_ref().is_some_and(|data| data.is_last));
        let last = (last_missing + rest.count()).min(end - 1);
        let pieces = self.slots.range_mut(start..=last);
        let mut number = None;
        for slot in pieces {
            slot.is_delivered = true;
            number = number.or(slot.data.as_ref().map(|data| data.message));
        }
        while self.slot(self.delivered_to).is_some_and(|slot| slot.is_delivered) {
            self.delivered_to = self.delivered_to.next();
        }
        self.open_from = self.open_from.later(self.delivered_to.earlier(self.ordered_to));
        self.forget();
        Some(number)
    }

    pub(crate) fn first_undelivered(&self) -> Option<SeqNo> {
        let mut kept = self.slots.iter().filter(|slot| !slot.is_delivered);
        kept.find_map(|slot| slot.data.as_ref()).map(|data| data.message)
    }

    pub(crate) fn check(&self) {
        assert!(self.slots.len() <= MAX_SLOTS, "{} slots", self.slots.len());
        for (boundary, name) in
            [(self.ordered_to, "ordered_to"), (self.delivered_to, "delivered_to")]
        {
            assert!(boundary.distance_from(self.base) >= 0, "{name} is before the window");
            assert!(boundary.distance_from(self.end()) <= 0, "{name} is beyond the window");
        }
        let data = self.slots.iter().filter_map(|slot| slot.data.as_ref());
        let held: usize = data.map(|data| data.payload.len()).sum();
        assert_eq!(held, self.held_bytes, "the held bytes were miscounted");
        let holes = self.slots.iter().filter(|slot| slot.data.is_none()).count();
        assert_eq!(holes, self.holes, "the holes were miscounted");
        let unbroken = self.slots.iter().take_while(|slot| slot.data.is_some()).count();
        assert_eq!(
            self.base.plus(unbroken as u32),
            self.unbroken_to,
            "the first hole is misplaced"
        );
    }

    fn bound(
        &self,
        seqno: SeqNo,
        is_bound: impl Fn(&Data) -> bool,
        step: impl Fn(SeqNo) -> SeqNo,
    ) -> Option<SeqNo> {
        let mut at = seqno;
        loop {
            if is_bound(self.packet(at)?) {
                return Some(at);
            }
            at = step(at);
        }
    }

    fn forget(&mut self) {
        // A joiner receives all fragments of a message that only partly has places.
        let over = self.stable_to.earlier(self.delivered_to).earlier(self.open_from);
        while over.is_after(self.base) {
            let Some(slot) = self.slots.pop_front() else { return };
            self.holes -= usize::from(slot.data.is_none());
            self.held_bytes -= slot.data.map_or(0, |data| data.payload.len());
            self.base = self.base.next();
            if self.base.is_after(self.unbroken_to) {
                self.unbroken_to = self.base;
                self.extend_unbroken();
            }
        }
    }

    fn reach(&mut self, count: usize) {
        if count > self.slots.len() {
            self.holes += count - self.slots.len();
            self.slots.resize_with(count, Slot::default);
        }
    }

    fn extend_unbroken(&mut self) {
        let from = self.place(self.unbroken_to);
        let here = self.slots.iter().skip(from).take_while(|slot| slot.data.is_some());
        self.unbroken_to = self.unbroken_to.plus(here.count() as u32);
    }

    fn slot(&self, seqno: SeqNo) -> Option<&Slot> {
        self.slots.get(usize::try_from(seqno.distance_from(self.base)).ok()?)
    }

    fn place(&self, seqno: SeqNo) -> usize {
        usize::try_from(seqno.distance_from(self.base)).expect("boundaries are in the window")
    }
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;

//! Decoder of the repairs that other nodes send (Slingshot, algorithm 1).

use super::pending_repairs::PendingRepairs;
use crate::lateral::config::Config;
use crate::lateral::context::Context;
use crate::lateral::index::StreamIx;
use crate::lateral::packet::WireId;
use crate::lateral::packet::symbol::{Symbol, xor_into};
use crate::lateral::receiver::{Known, Outcome, Receiver};
use crate::lateral::streams::Streams;
use crate::{How, NodeId, PacketId, SeqNo};

#[derive(Debug)]
pub(crate) struct Decoder {
    pub(crate) pending: PendingRepairs,
}

const MAX_SOLVED_AT_ONCE: usize = 16;

impl Decoder {
    pub(crate) fn new(config: &Config, seed: u64) -> Self {
        let Config { solver, pending_repairs, pending_age, .. } = *config;
        Self { pending: PendingRepairs::new(solver, pending_repairs, pending_age, seed) }
    }

    #[inline]
    pub(crate) fn accept(
        &mut self,
        cx: &mut Context,
        receiver: &mut Receiver,
        (ix, seqno): (StreamIx, SeqNo),
        symbol: &Symbol,
        how: How,
    ) -> Outcome {
        let outcome = receiver.accept(cx, (ix, seqno), symbol, how);
        if outcome == Outcome::Repaired {
            let id = receiver.streams.get(ix).id(seqno);
            self.pending.on_packet(id, symbol.bytes());
        }
        outcome
    }

    pub(crate) fn on_repair(
        &mut self,
        cx: &mut Context,
        receiver: &mut Receiver,
        from: NodeId,
        (ids, sum): (&[WireId], &[u8]),
    ) {
        cx.counters.repairs_received += 1;
        if holds_all(cx, &receiver.streams, ids) {
            cx.counters.repairs_redundant += 1;
            return;
        }
        let mut missing = Vec::new();
        let mut usable = true;
        for id in ids.iter().map(|id| PacketId::from(*id)) {
            match receiver.notice_in_repair(cx, from, id) {
                Known::Held => {}
                Known::Missing if missing.contains(&id) => {
                    // The equations assume that each packet occurs only once in an XOR.
                    cx.counters.repairs_contradictory += 1;
                    return;
                }
                Known::Missing => missing.push(id),
                Known::Useless => usable = false,
            }
        }
        if !usable {
            cx.counters.repairs_unusable += 1;
            return;
        }
        if missing.is_empty() {
            cx.counters.repairs_redundant += 1;
            return;
        }
        let Some(rest) = subtract_held(cx, &receiver.streams, ids, sum) else {
            cx.counters.repairs_contradictory += 1;
            return;
        };
        if let [id] = missing[..] {
            self.accept_solved(cx, receiver, from, (id, &rest));
        } else {
            cx.counters.repairs_pending += 1;
            self.pending.insert(cx.now, from, missing, rest);
        }
        self.accept_all_solved(cx, receiver);
    }

    /// Accepts solved packets, at most [`MAX_SOLVED_AT_ONCE`], so that sockets are served in time.
    #[inline]
    pub(crate) fn accept_all_solved(&mut self, cx: &mut Context, receiver: &mut Receiver) {
        for _ in 0..MAX_SOLVED_AT_ONCE {
            let Some(solved) = self.pending.pop_solved() else { return };
            self.accept_solved(cx, receiver, solved.from, (solved.id, &solved.sum));
        }
    }

    fn accept_solved(
        &mut self,
        cx: &mut Context,
        receiver: &mut Receiver,
        from: NodeId,
        (id, sum): (PacketId, &[u8]),
    ) {
        let symbol = Symbol::from_repair(&mut cx.arena, sum).ok();
        let Some(symbol) = symbol.filter(|symbol| cx.fits_repair(symbol.bytes())) else {
            cx.counters.repairs_contradictory += 1;
            return;
        };
        let streams = &receiver.streams;
        let stream = streams.find_packet(&cx.groups, id);
        // Meanwhile, the packet may have been given up, or this node may have left its group.
        let missing = |ix: &StreamIx| streams.get(*ix).window.missing(id.seqno).is_some();
        if let Some(ix) = stream.filter(missing) {
            self.accept(cx, receiver, (ix, id.seqno), &symbol, How::Recovered(from));
        }
    }
}

/// Only reads, so that the processor can overlap the memory accesses of the look-ups.
fn holds_all(cx: &Context, streams: &Streams, ids: &[WireId]) -> bool {
    ids.iter().map(|id| PacketId::from(*id)).all(|id| {
        let stream = streams.find_packet(&cx.groups, id);
        stream.is_some_and(|ix| streams.get(ix).window.holds(id.seqno))
    })
}

/// Returns `None` if a held packet is longer than `sum`, which no correct repair causes.
fn subtract_held(cx: &Context, streams: &Streams, ids: &[WireId], sum: &[u8]) -> Option<Vec<u8>> {
    let mut rest = sum.to_vec();
    for id in ids.iter().map(|id| PacketId::from(*id)) {
        if let Some(held) = streams.held(streams.find_packet(&cx.groups, id)?, id.seqno) {
            let symbol = held.symbol().bytes();
            if symbol.len() > rest.len() {
                return None;
            }
            xor_into(&mut rest, symbol);
        }
    }
    Some(rest)
}

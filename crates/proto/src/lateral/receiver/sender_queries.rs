//! Queries to the senders of streams for the first number that this node is owed, the next number,
//! and the sender's current incarnation.
//!
//! Any host that receives the group's multicast can forge data packets, repairs and heartbeats.
//! Three kinds of claims therefore wait for the sender's answer to an *open*: a jump to a number
//! far ahead, another incarnation of the sender, and a packet that is about to be reported as lost.
//! The answer repeats a nonce that was sent only to the sender. If the sender does not answer,
//! claims about its stream are believed.

use core::time::Duration;

use crate::lateral::context::{Context, TimerKey};
use crate::lateral::index::StreamIx;
use crate::lateral::packet::Packet;
use crate::lateral::streams::Stream;
use crate::{Destination, Rng, SeqNo};

#[derive(Debug)]
pub(super) struct SenderQueries {
    /// Generator used only for nonces, so that they cannot be inferred from other random choices.
    nonces: Rng,
}

impl SenderQueries {
    pub(super) fn new(nonces: Rng) -> Self {
        Self { nonces }
    }

    pub(super) fn send_open(&mut self, cx: &mut Context, ix: StreamIx, stream: &mut Stream) {
        let nonce = self.nonce();
        if let Some((nonce, wait)) = stream.next_open(cx.now, nonce) {
            cx.counters.opens_sent += 1;
            let to = Destination::Node(stream.sender);
            cx.transmit(to, stream.group, Packet::Open { nonce });
            cx.timers.set(TimerKey::Open(ix), cx.now + wait);
        }
    }

    pub(super) fn on_heard(&mut self, cx: &mut Context, ix: StreamIx, stream: &mut Stream) {
        if !cx.timers.is_set(TimerKey::Open(ix)) {
            self.send_open(cx, ix, stream);
        }
    }

    pub(super) fn query(&mut self, cx: &mut Context, ix: StreamIx, stream: &mut Stream) {
        if stream.query.is_some() {
            self.on_heard(cx, ix, stream);
        } else {
            stream.begin_query(self.nonce());
            self.send_open(cx, ix, stream);
        }
    }

    pub(super) fn repeat(&mut self, cx: &mut Context, ix: StreamIx, stream: &mut Stream) {
        stream.drop_query();
        self.query(cx, ix, stream);
        stream.mark_query_repeated();
    }

    /// Queries the sender of an unverified missing packet. Returns the time to wait for the answer,
    /// or `None` if the packet need not wait. `is_over`: the packet is about to be given up.
    pub(super) fn verify(
        &mut self,
        cx: &mut Context,
        ix: StreamIx,
        stream: &mut Stream,
        (seqno, is_over): (SeqNo, bool),
    ) -> Option<Duration> {
        if !stream.is_unverified(seqno, is_over) || stream.is_believed(cx.now, &cx.config) {
            return None;
        }
        self.query(cx, ix, stream);
        Some(stream.time_to_answer())
    }

    fn nonce(&mut self) -> u64 {
        self.nonces.next_u64().max(1)
    }
}

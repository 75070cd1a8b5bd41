//! NAK recovery (Slingshot, algorithm 1, lines 34 to 40), which requests and retransmits packets.

mod cookies;
mod nak_suppression;
mod nak_targets;

use alloc::collections::BTreeMap;
use core::time::Duration;

use super::config::NakConfig;
use super::context::Context;
use super::index::GroupIx;
use super::packet::symbol::Symbol;
use super::packet::{Packet, WireId, ids_that_fit};
use super::streams::{Missing, Stream, Streams};
use crate::{Destination, LossCause, NodeId, PacketId, Rng, Time};
use cookies::Cookies;
use nak_suppression::RateLimit;

pub(super) use nak_suppression::first_wait;

#[derive(Debug)]
pub(super) struct NakRecovery {
    cookies: Cookies,
    request_limit: RateLimit,
    answer_limit: RateLimit,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    GiveUp(LossCause),
    WaitUntil(Time),
    /// No packet may be requested before this time.
    PauseUntil(Time),
    Request {
        target: NodeId,
        retry_at: Time,
    },
}

impl NakRecovery {
    pub(super) fn new(config: Option<&NakConfig>, nonces: &mut Rng) -> Self {
        let limit = |of: fn(&NakConfig) -> u32| RateLimit::new(config.map_or(0, of));
        Self {
            cookies: Cookies::new(nonces),
            request_limit: limit(|nak| nak.ids_per_second),
            answer_limit: limit(|nak| nak.answers_per_second),
        }
    }

    pub(super) fn next_step(
        &mut self,
        cx: &mut Context,
        missing: &Missing,
        stream: &Stream,
    ) -> Step {
        let (now, end) = (cx.now, missing.noticed_at + cx.config.give_up_after);
        if now >= end {
            return Step::GiveUp(LossCause::DeadlinePassed);
        }
        let Some(nak) = &cx.config.nak else { return Step::WaitUntil(end) };
        if missing.attempts >= nak.attempts {
            return Step::GiveUp(LossCause::AttemptsSpent);
        }
        if !self.request_limit.take(now) {
            // The pause lasts at least 1 ms, so that many packets are requested together.
            let next = self.request_limit.next_at(now).max(now + Duration::from_millis(1));
            return if next < end { Step::PauseUntil(next) } else { Step::WaitUntil(end) };
        }
        let members = &cx.groups.get(stream.group).members;
        let sender = stream.sender;
        let target = nak_targets::nak_target(nak.first, missing, sender, members, &mut cx.rng);
        let wait = nak_suppression::retry_wait(nak, missing.attempts + 1, &mut cx.rng);
        Step::Request { target, retry_at: (now + wait).min(end) }
    }

    pub(super) fn request(&self, cx: &mut Context, requests: BTreeMap<NodeId, Vec<WireId>>) {
        let fit = ids_that_fit(cx.config.max_datagram_bytes());
        for (target, ids) in requests {
            ids.chunks(fit).for_each(|ids| self.send_nak(cx, target, ids));
        }
    }

    fn send_nak(&self, cx: &mut Context, target: NodeId, ids: &[WireId]) {
        cx.counters.naks_sent += 1;
        cx.counters.ids_asked += ids.len() as u64;
        let cookie = self.cookies.given_by(target);
        cx.transmit_to(target, Packet::Nak { cookie, ids });
    }

    pub(super) fn on_challenge(
        &mut self,
        cx: &mut Context,
        streams: &Streams,
        from: NodeId,
        (cookie, ids): (u64, &[WireId]),
    ) {
        self.cookies.keep(from, cookie);
        let mut still_missing = Vec::with_capacity(ids.len());
        for wire_id in ids {
            let id = PacketId::from(*wire_id);
            let stream = streams.find_packet(&cx.groups, id).map(|ix| streams.get(ix));
            let missing = stream.and_then(|stream| stream.window.missing(id.seqno));
            let was_requested = missing.is_some_and(|ix| streams.losses.get(ix).attempts > 0);
            if was_requested && self.request_limit.take(cx.now) {
                still_missing.push(*wire_id);
            }
        }
        if !still_missing.is_empty() {
            self.send_nak(cx, from, &still_missing);
        }
    }

    pub(super) fn on_nak(
        &mut self,
        cx: &mut Context,
        streams: &Streams,
        from: NodeId,
        (cookie, ids): (u64, &[WireId]),
    ) {
        cx.counters.naks_received += 1;
        if cookie != self.cookies.of(from) {
            cx.counters.challenges_sent += 1;
            let packet = Packet::Challenge { cookie: self.cookies.of(from), ids };
            cx.transmit_to(from, packet);
            return;
        }
        let (mut have_not, mut expired) = (Vec::new(), Vec::new());
        for wire_id in ids {
            let id = PacketId::from(*wire_id);
            match Answer::to(cx, streams, id) {
                Answer::Symbol(..) if !self.answer_limit.take(cx.now) => {
                    cx.counters.answers_suppressed += 1;
                }
                Answer::Symbol(group, symbol) => {
                    cx.counters.retransmissions_sent += 1;
                    let (origin, seqno, symbol) = (id.sender, id.seqno, symbol.bytes());
                    let packet = Packet::Retransmission { origin, seqno, symbol };
                    cx.transmit(Destination::Node(from), group, packet);
                }
                Answer::HaveNot => have_not.push(*wire_id),
                Answer::Expired => expired.push(*wire_id),
            }
        }
        let fit = ids_that_fit(cx.config.max_datagram_bytes());
        for (ids, expired) in [(have_not, false), (expired, true)] {
            for ids in ids.chunks(fit) {
                cx.counters.have_nots_sent += 1;
                cx.transmit_to(from, Packet::HaveNot { ids, expired });
            }
        }
    }
}

enum Answer {
    Symbol(GroupIx, Symbol),
    HaveNot,
    Expired,
}

impl Answer {
    fn to(cx: &Context, streams: &Streams, id: PacketId) -> Self {
        let Some(ix) = streams.find_packet(&cx.groups, id) else { return Self::HaveNot };
        match streams.held(ix, id.seqno) {
            None => Self::HaveNot,
            Some(held) => match held.symbol().deadline() {
                Some(deadline) if cx.now > held.received_at + deadline => Self::Expired,
                _ => Self::Symbol(streams.get(ix).group, held.symbol().clone()),
            },
        }
    }
}

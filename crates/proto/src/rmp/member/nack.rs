//! Requests for missing packets and rounds, and the answers to them (4.2).
//!
//! A member that lacks a packet or round requests it from one node after another. If nothing is
//! missing while the token is in flight, the member also waits for the next round, which may have
//! been lost completely. A member that neither gets an answer nor hears the first node begins a
//! [reformation](super::reformation).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use crate::ring::{Epoch, Process, Timestamp};
use crate::rmp::context::{Context, Timer};
use crate::rmp::packet::{DataPacket, Nack, Packet};
use crate::rmp::ring::{Gaps, Ring};
use crate::{NodeId, SeqNo, Time};

#[derive(Debug, Default)]
pub(super) struct Nacks {
    tries: u32,
    /// Number of tries since the first node to query was last heard.
    silent_tries: u32,
    missing: Gaps,
    awaited: Gaps,
    retransmissions: Retransmissions,
}

impl Nacks {
    // `changes_wait` is `true` if a member waits to join or leave, for which the token must move.
    pub(super) fn set_timer(&mut self, cx: &mut Context<'_>, ring: &Ring, changes_wait: bool) {
        let missing = ring.gaps();
        if missing != self.missing {
            (self.tries, self.silent_tries) = (0, 0);
        }
        if !missing.is_empty() {
            let wait = match self.tries {
                0 => cx.timing.nack_delay(cx.config),
                tries => cx.timing.timeout(cx.config, tries - 1),
            };
            if missing.overlaps(&self.awaited) {
                cx.set_no_later(Timer::Ask, wait);
            } else {
                // All packets and rounds for which the timer was set have arrived.
                cx.set(Timer::Ask, wait);
                self.awaited.clone_from(&missing);
            }
        } else if ring.token() != ring.me() && (!ring.is_quiet() || changes_wait) {
            // The token is in flight, or no member holds it any longer.
            let is_for_token = core::mem::take(&mut self.awaited).is_empty();
            if !(is_for_token && cx.is_set(Timer::Ask)) {
                cx.set(Timer::Ask, cx.config.idle_after + cx.timing.longest(cx.config));
            }
        } else {
            cx.cancel(Timer::Ask);
            (self.tries, self.silent_tries) = (0, 0);
            self.awaited = Gaps::default();
        }
        self.missing = missing;
    }

    pub(super) fn on_applied(&mut self, cx: &mut Context<'_>) {
        (self.tries, self.silent_tries) = (0, 0);
        cx.cancel(Timer::Ask);
    }

    // A node that is alive has the packets that it sent, so its answers are merely late or lost.
    pub(super) fn on_heard(&mut self, ring: &Ring, node: NodeId) {
        if self.silent_tries > 0 && first_responder(ring, &self.missing).node == node {
            self.silent_tries = 0;
        }
    }

    pub(super) fn clear(&mut self) {
        (self.missing, self.awaited) = (Gaps::default(), Gaps::default());
    }

    pub(super) fn on_timer(&mut self, cx: &mut Context<'_>, ring: &Ring) -> bool {
        self.tries += 1;
        self.silent_tries += 1;
        let named_tries = cx.config.tries.min(ring.view().len() as u32);
        if self.silent_tries > cx.config.tries + named_tries {
            return false;
        }
        let mut missing = ring.gaps();
        if missing.is_empty() {
            // A message waits for rounds that this member has never received.
            missing.to = Timestamp::MAX;
        }
        let turn = (self.tries - 1) % (cx.config.tries + named_tries);
        let asked = responder(ring, &missing, turn as usize).filter(|_| turn < named_tries);
        let nack = nack(ring.epoch(), asked, missing);
        cx.counters.nacks_sent += 1;
        // Other members receive the request as well and need not repeat it.
        cx.multicast(&nack);
        cx.set(Timer::Ask, cx.timing.timeout(cx.config, self.tries));
        true
    }

    pub(super) fn on_nack(&mut self, cx: &mut Context<'_>, ring: &Ring, to: NodeId, nack: &Nack) {
        let is_asked = match nack.asked {
            Some(asked) => asked == cx.node,
            None => cx.rng.below(ring.view().len()) < 2,
        };
        if !is_asked {
            return;
        }
        let rounds = ring.log().range(nack.from, nack.to).take(ROUNDS_IN_AN_ANSWER);
        let mut left = PACKETS_IN_AN_ANSWER;
        for round in rounds {
            left -= 1;
            cx.counters.nacks_answered += 1;
            cx.unicast(to, &Packet::of_round(nack.epoch, round));
        }
        for run in &nack.runs {
            for seqno in (0..u32::from(run.count)).map(|step| run.first.plus(step)) {
                let Some(packet) = DataPacket::kept(ring, run.source, seqno).filter(|_| left > 0)
                else {
                    continue;
                };
                left -= 1;
                self.retransmit(cx, to, (run.source, seqno), &Packet::Data(packet));
            }
        }
    }

    fn retransmit(
        &mut self,
        cx: &mut Context<'_>,
        to: NodeId,
        name: (Process, SeqNo),
        packet: &Packet,
    ) {
        let span = cx.config.least_timeout / 2;
        let destination = self.retransmissions.next(cx.now, span, name);
        cx.counters.nacks_answered += u64::from(destination != RetransmitTo::None);
        match destination {
            RetransmitTo::One => cx.unicast(to, packet),
            RetransmitTo::All => cx.multicast(packet),
            RetransmitTo::None => {}
        }
    }
}

/// Returns the node to query first: the last known token site or the source (4.2).
fn first_responder(ring: &Ring, missing: &Gaps) -> Process {
    let early = ring.log().early().last().map(|round| round.site);
    let source = missing.runs.first().map(|run| run.source);
    early.or(source).unwrap_or(ring.token())
}

/// Returns the node to query, or `None` if all have had a turn. Any member may then answer (4.2).
fn responder(ring: &Ring, missing: &Gaps, turn: usize) -> Option<NodeId> {
    let others: Vec<Process> = ring.view().processes().filter(|it| *it != ring.me()).collect();
    let first = first_responder(ring, missing);
    let first = others.iter().position(|other| *other == first).unwrap_or(0);
    (turn < others.len()).then(|| others[(first + turn) % others.len()].node)
}

pub(super) fn request_from(cx: &mut Context<'_>, node: NodeId, epoch: Epoch, missing: Gaps) {
    cx.counters.nacks_sent += 1;
    cx.unicast(node, &nack(epoch, Some(node), missing));
}

fn nack(epoch: Epoch, asked: Option<NodeId>, missing: Gaps) -> Packet {
    let Gaps { from, to, mut runs } = missing;
    runs.truncate(RUNS_IN_A_NACK);
    Packet::Nack(Nack { epoch, asked, from, to, runs })
}

const RUNS_IN_A_NACK: usize = 64;
const ROUNDS_IN_AN_ANSWER: usize = 32;
const PACKETS_IN_AN_ANSWER: usize = 64;

/// Choice between retransmission to one member and to all (4.2: "a topic for continuing research").
/// A packet that is requested twice within a short time was probably lost on a part of the path
/// that several members share.
#[derive(Debug, Default)]
struct Retransmissions {
    lately: BTreeMap<(Process, u32), (Time, RetransmitTo)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RetransmitTo {
    One,
    All,
    /// The packet has just been sent to all members.
    None,
}

const MAX_REMEMBERED: usize = 256;

impl Retransmissions {
    fn next(&mut self, now: Time, span: Duration, packet: (Process, SeqNo)) -> RetransmitTo {
        let packet = (packet.0, packet.1.0);
        let last = self.lately.get(&packet).filter(|(at, _)| now.since(*at) < span);
        let destination = match last {
            None => RetransmitTo::One,
            Some((_, RetransmitTo::One)) => RetransmitTo::All,
            Some(_) => return RetransmitTo::None,
        };
        if self.lately.len() >= MAX_REMEMBERED {
            self.lately.retain(|_, (at, _)| now.since(*at) < span);
        }
        if self.lately.len() >= MAX_REMEMBERED {
            self.lately.pop_first();
        }
        self.lately.insert(packet, (now, destination));
        destination
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packet_is_retransmitted_to_one_then_to_all_then_pauses() {
        let mut retransmissions = Retransmissions::default();
        let packet = (Process { node: NodeId(1), life: 1 }, SeqNo(7));
        let span = Duration::from_nanos(100);
        let next = |at| retransmissions.next(Time(at), span, packet);
        let given = [1000, 1010, 1020, 1109, 1110].map(next);
        let [one, all, none] = [RetransmitTo::One, RetransmitTo::All, RetransmitTo::None];
        assert_eq!(given, [one, all, none, none, one]);
    }

    #[test]
    fn remembered_repairs_are_bounded() {
        let mut retransmissions = Retransmissions::default();
        let process = Process { node: NodeId(1), life: 1 };
        for number in 0..10_000 {
            retransmissions.next(Time(1), Duration::from_secs(1), (process, SeqNo(number)));
        }
        assert_eq!(retransmissions.lately.len(), MAX_REMEMBERED);
    }
}

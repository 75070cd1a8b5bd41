//! What speaks against this node's own findings: that it has heard the member that it suspects, or
//! that it is slow itself.

use core::time::Duration;

use foca::{Header, Message, ProbeNumber, Timer};

use super::Config;
use super::health::{Health, SignsOfLife};
use super::identity::Identity;
use crate::{NodeId, Time};

/// Watches what SWIM sends, gets and waits for.
#[derive(Debug)]
pub(super) struct Doubts {
    health: Health,
    signs: SignsOfLife,
    probe: Option<Probe>,
    probe_period: Duration,
    /// How late a call may be before it counts as a stall, and how long the driver has after one
    /// to hand over what has arrived meanwhile.
    leeway: Duration,
    /// The bump and the incarnation under which this node last said something.
    spoken_as: (u32, u16),
    counters: Counters,
}

/// The probe under way.
#[derive(Debug)]
struct Probe {
    target: Identity,
    number: ProbeNumber,
    began: Time,
    answered: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    /// Probes that only something else which came from the member has answered.
    probes_answered_otherwise: u64,
    /// Suspicions that ended because something else came from the member than a proof of life.
    suspicions_withdrawn: u64,
    /// How often this node had to say that it is alive because others thought it was not.
    refutations: u64,
    /// Calls that came much later than this node had asked for, and their delay in all.
    stalls: u64,
    stalled_ms: u64,
}

impl Doubts {
    pub(super) fn new(config: &Config, seed: u64) -> Self {
        Self {
            health: Health::new(config.local_health),
            signs: SignsOfLife::new(config.heartbeats, seed),
            probe: None,
            probe_period: config.probe_period(),
            leeway: config.probe_round_trip(),
            spoken_as: (0, 0),
            counters: Counters::default(),
        }
    }

    pub(super) fn signs(&self) -> &SignsOfLife {
        &self.signs
    }

    pub(super) fn signs_mut(&mut self) -> &mut SignsOfLife {
        &mut self.signs
    }

    /// This node is called at `now`, and wanted to be called at `due`. If that is much earlier, it
    /// stood still, and what the others have sent meanwhile waits unread: says for how long all
    /// that is due must be put off.
    pub(super) fn on_call(&mut self, now: Time, due: Time) -> Option<Duration> {
        let late = now.since(due);
        if late <= self.leeway || !self.health.is_minded() {
            return None;
        }
        let periods = late.as_nanos() / self.probe_period.as_nanos();
        self.health.worsen(u32::try_from(periods).unwrap_or(u32::MAX).max(1));
        self.counters.stalls += 1;
        self.counters.stalled_ms += late.as_millis() as u64;
        Some(late + self.leeway)
    }

    /// What `foca` sends shows what it does not tell: whom it probes, and that it had to say that
    /// this node is alive.
    pub(super) fn on_sent(&mut self, now: Time, header: &Header<Identity>) {
        if let Message::Ping(number) = header.message {
            let target = header.dst;
            self.probe = Some(Probe { target, number, began: now, answered: false });
        }
        let speaks_as = (header.src.bump, header.src_incarnation);
        if speaks_as > self.spoken_as {
            self.spoken_as = speaks_as;
            self.counters.refutations += 1;
            self.health.worsen(1);
        }
    }

    pub(super) fn on_received(&mut self, header: &Header<Identity>) {
        let Some(probe) = &mut self.probe else { return };
        probe.answered |= match header.message {
            Message::Ack(number) => number == probe.number && header.src == probe.target,
            Message::ForwardedAck { origin, probe_number } => {
                probe_number == probe.number && origin == probe.target
            }
            _ => false,
        };
    }

    /// The probe under way, if it lacks an answer but something else has come from its target.
    pub(super) fn probe_to_answer(&mut self) -> Option<(Identity, ProbeNumber)> {
        let probe = self.probe.as_mut()?;
        if probe.answered || !self.signs.any_after(probe.target.node, probe.began) {
            return None;
        }
        probe.answered = true;
        self.counters.probes_answered_otherwise += 1;
        Some((probe.target, probe.number))
    }

    /// The time of the probe under way is over.
    pub(super) fn end_probe(&mut self) {
        if self.probe.take().is_some_and(|probe| probe.answered) {
            self.health.improve();
        }
    }

    /// Whether `node`, which has been suspected since `since`, was heard after all.
    pub(super) fn withdraws(&mut self, node: NodeId, since: Time) -> bool {
        let is_heard = self.signs.any_after(node, since);
        if is_heard {
            self.counters.suspicions_withdrawn += 1;
            self.health.worsen(1);
        }
        is_heard
    }

    /// A suspicion that this node had raised was wrong.
    pub(super) fn was_wrong(&mut self) {
        self.health.worsen(1);
    }

    /// How long to wait for what `foca` wants to wait `after` for.
    pub(super) fn patience(&self, timer: &Timer<Identity>, after: Duration) -> Duration {
        match timer {
            Timer::ProbeRandomMember(_) | Timer::SendIndirectProbe { .. } => {
                self.health.for_probe(after)
            }
            Timer::ChangeSuspectToDown { .. } => self.health.for_suspicion(after),
            _ => after,
        }
    }

    /// How often a suspected member may be asked until the suspicion's time is over.
    pub(super) fn asks(&self) -> u32 {
        Config::CHALLENGES + self.health.score()
    }

    pub(super) fn by_name(&self) -> [(&'static str, u64); 6] {
        [
            ("probes_answered_otherwise", self.counters.probes_answered_otherwise),
            ("suspicions_withdrawn", self.counters.suspicions_withdrawn),
            ("refutations", self.counters.refutations),
            ("stalls", self.counters.stalls),
            ("stalled_ms", self.counters.stalled_ms),
            ("local_health", u64::from(self.health.score())),
        ]
    }
}

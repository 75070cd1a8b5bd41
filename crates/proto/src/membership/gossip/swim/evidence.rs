//! Evidence against this node's suspicions: the suspected member was heard, or this node is slow.

use core::time::Duration;

use foca::{Header, Message, ProbeNumber, Timer};

use super::health::{Health, SignsOfLife};
use crate::membership::gossip::config::Config;
use crate::membership::gossip::identity::Identity;
use crate::{NodeId, Time};

#[derive(Debug)]
pub(super) struct Evidence {
    health: Health,
    pub(super) signs: SignsOfLife,
    probe: Option<Probe>,
    probe_period: Duration,
    /// Maximum delay of a call that is not a stall. It is also the time to read waiting datagrams
    /// after a stall.
    leeway: Duration,
    /// Highest bump and SWIM incarnation that this node has sent.
    spoken_as: (u32, u16),
    counters: Counters,
}

#[derive(Debug)]
struct Probe {
    target: Identity,
    number: ProbeNumber,
    began: Time,
    answered: bool,
}

crate::counters! {
    struct Counters {
        probes_answered_otherwise,
        suspicions_withdrawn,
        refutations,
        stalls,
        stalled_ms,
    }
}

impl Evidence {
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

    /// Worsens the health after a stall, and returns the time by which to postpone all timers.
    pub(super) fn on_call(&mut self, now: Time, due: Time) -> Option<Duration> {
        let late = now.since(due);
        if late <= self.leeway || !self.health.is_enabled() {
            return None;
        }
        let periods = late.as_nanos() / self.probe_period.as_nanos();
        self.health.worsen(u32::try_from(periods).unwrap_or(u32::MAX).max(1));
        self.counters.stalls += 1;
        self.counters.stalled_ms += late.as_millis() as u64;
        Some(late + self.leeway)
    }

    /// Detects what `foca` does not report: the target of a probe, and a refutation by this node.
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

    /// Returns the unanswered probe, and marks it as answered, if its target was heard meanwhile.
    pub(super) fn probe_to_answer(&mut self) -> Option<(Identity, ProbeNumber)> {
        let probe = self.probe.as_mut()?;
        if probe.answered || !self.signs.any_after(probe.target.node, probe.began) {
            return None;
        }
        probe.answered = true;
        self.counters.probes_answered_otherwise += 1;
        Some((probe.target, probe.number))
    }

    pub(super) fn end_probe(&mut self) {
        if self.probe.take().is_some_and(|probe| probe.answered) {
            self.health.improve();
        }
    }

    pub(super) fn withdraws(&mut self, node: NodeId, since: Time) -> bool {
        let is_heard = self.signs.any_after(node, since);
        if is_heard {
            self.counters.suspicions_withdrawn += 1;
            self.health.worsen(1);
        }
        is_heard
    }

    pub(super) fn was_wrong(&mut self) {
        self.health.worsen(1);
    }

    pub(super) fn patience(&self, timer: &Timer<Identity>, after: Duration) -> Duration {
        match timer {
            Timer::ProbeRandomMember(_) | Timer::SendIndirectProbe { .. } => {
                self.health.for_probe(after)
            }
            Timer::ChangeSuspectToDown { .. } => self.health.for_suspicion(after),
            _ => after,
        }
    }

    pub(super) fn requests_to_suspect(&self) -> u32 {
        Config::CHALLENGES + self.health.score()
    }

    pub(super) fn stats(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.counters.by_name().chain([("local_health", u64::from(self.health.score()))])
    }
}

//! Who sends when.

use std::rc::Rc;
use std::time::Duration;

use carom_proto::{Engine, Rng, SendOptions, Time};
use carom_sim::{HostIx, World};

use super::ledger::Ledger;
use super::member::Member;
use super::{Groups, LateralRun, group_id};
use crate::work::Ends;

/// Every node sends at the same interval, each at its own moment in it, into one of its groups at
/// random.
pub(super) struct Sending {
    groups: Rc<Groups>,
    interval: Duration,
    payload: bytes::Bytes,
    /// When each node sends within the interval, in order.
    phases: Vec<(Duration, u32)>,
    /// The next to send, and the beginning of the interval it is in.
    next: (usize, Time),
    /// From when and until when it counts.
    counts: (Time, Time),
    rng: Rng,
}

impl Sending {
    /// What `run` wants to be sent.
    pub(super) fn new(run: &LateralRun, groups: Rc<Groups>, rng: &mut Rng) -> Self {
        let received_per_second = groups.mean_received_per_message() / run.interval.as_secs_f64();
        let seconds = |seconds: f64| Duration::from_nanos((seconds * 1e9) as u64);
        let warm_up = f64::from(run.length.warm_up_packets) / received_per_second;
        let losses_per_second =
            received_per_second * groups.hosts().count() as f64 * run.loss.rate().max(1e-3);
        let counts = BEGINNING + seconds(warm_up);
        let until = counts + seconds(f64::from(run.length.losses) / losses_per_second);
        let phase = |host| (seconds(run.interval.as_secs_f64() * rng.fraction()), host);
        let mut phases: Vec<(Duration, u32)> = groups.hosts().map(phase).collect();
        phases.sort_unstable();
        Self {
            interval: run.interval,
            payload: vec![0xA5; run.payload_bytes].into(),
            phases,
            next: (0, BEGINNING),
            counts: (counts, until),
            rng: rng.fork(1),
            groups,
        }
    }

    /// From when and until when what is sent counts.
    pub(super) fn counts(&self) -> (Time, Time) {
        self.counts
    }

    /// Sends what is due before `to`; `None` if it was ended early.
    pub(super) fn go_on<E: Engine>(
        &mut self,
        world: &mut World<Member<E>>,
        ledger: &mut Ledger,
        to: Time,
        ends: Ends<'_>,
    ) -> Option<()> {
        loop {
            let (phase, host) = self.phases[self.next.0];
            let at = self.next.1 + phase;
            if at >= to {
                world.run_until(to, &mut |happening| ledger.note(happening));
                return Some(());
            }
            self.next.0 += 1;
            if self.next.0 == self.phases.len() {
                self.next = (0, self.next.1 + self.interval);
            }
            if ends() {
                return None;
            }
            world.run_until(at, &mut |happening| ledger.note(happening));
            self.send(world, ledger, host);
        }
    }

    fn send<E: Engine>(&mut self, world: &mut World<Member<E>>, ledger: &mut Ledger, host: u32) {
        let own = self.groups.of(host);
        let group = own[self.rng.below(own.len())];
        let payload = self.payload.clone();
        let sent = world.with(HostIx(host), |member, now| {
            member.send(now, group_id(group), payload, SendOptions::default())
        });
        sent.expect("every host has a machine")
            .expect("nobody is held back, and the size is right");
        ledger.note_sent(world.now(), group);
    }
}

/// When a world begins.
const BEGINNING: Time = Time(1_000_000_000);

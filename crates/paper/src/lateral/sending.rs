use std::rc::Rc;
use std::time::Duration;

use carom_proto::{Engine, Rng, SendOptions, Time};
use carom_sim::{HostIx, World};

use super::churn::Changes;
use super::ledger::Ledger;
use super::member::Member;
use super::membership::{Groups, group_id};
use super::stays::{BEGINNING, Stays};
use crate::work::Env;

/// The sender of all messages. Each node has a random phase, and draws a group for each message.
pub(super) struct Sending {
    groups: Rc<Groups>,
    stays: Rc<Stays>,
    interval: Duration,
    payload: bytes::Bytes,
    phases: Vec<(Duration, u32)>,
    /// Index of the next phase, and the start of its interval.
    next: (usize, Time),
    rng: Rng,
}

impl Sending {
    pub(super) fn new(
        interval: Duration,
        payload_bytes: usize,
        groups: &Rc<Groups>,
        stays: &Rc<Stays>,
        rng: &mut Rng,
    ) -> Self {
        let seconds = |seconds: f64| Duration::from_nanos((seconds * 1e9) as u64);
        let phase = |host| (seconds(interval.as_secs_f64() * rng.fraction()), host);
        let mut phases: Vec<(Duration, u32)> = groups.hosts().map(phase).collect();
        phases.sort_unstable();
        Self {
            interval,
            payload: vec![0xA5; payload_bytes].into(),
            phases,
            next: (0, BEGINNING),
            rng: rng.fork(1),
            groups: Rc::clone(groups),
            stays: Rc::clone(stays),
        }
    }

    /// Sends the messages that are due before `to`, and applies changes. Returns `None` if the run
    /// is ended early.
    pub(super) fn go_on<E: Engine>(
        &mut self,
        world: &mut World<Member<E>>,
        changes: &mut Changes<'_, E>,
        ledger: &mut Ledger,
        to: Time,
        env: Env<'_>,
    ) -> Option<()> {
        loop {
            let (phase, host) = self.phases[self.next.0];
            let at = self.next.1 + phase;
            changes.go_on(world, ledger, at.min(to));
            if at >= to {
                world.run_until(to, &mut |happening| ledger.note(happening));
                return Some(());
            }
            self.next.0 += 1;
            if self.next.0 == self.phases.len() {
                self.next = (0, self.next.1 + self.interval);
            }
            if env.ends() {
                return None;
            }
            world.run_until(at, &mut |happening| ledger.note(happening));
            if self.stays.is_there(host, at) {
                self.send(world, ledger, host);
            }
        }
    }

    fn send<E: Engine>(&mut self, world: &mut World<Member<E>>, ledger: &mut Ledger, host: u32) {
        let own = self.groups.of(host);
        let group = own[self.rng.below(own.len())];
        let payload = self.payload.clone();
        let sent = world.with(HostIx(host), |member, now| {
            member.engine.send(now, group_id(group), payload, SendOptions::default())
        });
        sent.expect("every host has a machine")
            .expect("no sender is held back, and the size is valid");
        ledger.note_sent(world.now(), group, host);
    }
}

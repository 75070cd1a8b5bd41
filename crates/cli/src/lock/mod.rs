mod args;
mod holding;

use std::pin::Pin;
use std::time::{Duration, Instant};

use carom::blocking::Group;
use carom::{Lock, LockError};
use carom_terminal::interrupt::{self, Interrupt};
use carom_terminal::{CliError, Outcome};

use crate::ring::{self, Limit, Part, RingWatch};
use crate::waiting;
pub(crate) use args::Args;
use holding::Holding;

pub(crate) fn run(args: &Args) -> Result<Outcome, CliError> {
    let interrupt = interrupt::listen_to_all()?;
    interrupt::into_outcome(run_until(args, interrupt))
}

fn run_until(args: &Args, interrupt: &Interrupt) -> Result<Outcome, CliError> {
    let limit = Limit::new(if args.does_not_wait { Some(Duration::ZERO) } else { args.timeout });
    args.ring.warn("others may hold this lock at the same time");
    let node = args.node.start(args.node.builder(), interrupt)?;
    let profile = args.ring.profile(Part::Client);
    let group = match ring::join_within(&node, &args.group, profile, interrupt, limit)? {
        Ok(group) => group,
        Err(why) => {
            args.say_not_had(&why);
            return Ok(Outcome::Code(args.conflict_code));
        }
    };
    let watch = if args.verbose { RingWatch::new } else { RingWatch::quiet };
    let mut asking = Asking { args, group: &group, interrupt, ring: watch(node.id()) };
    let ended = asking.get(limit).and_then(|lock| match lock {
        None => Ok(Outcome::Code(args.conflict_code)),
        Some(lock) => Holding::new(args, lock, asking.ring, interrupt).run(&group),
    });
    // After an orderly leave, the next member gets the lock without first detecting a failure.
    group.leave();
    node.close();
    ended
}

struct Asking<'a> {
    args: &'a Args,
    group: &'a Group,
    interrupt: &'a Interrupt,
    ring: RingWatch,
}

impl Asking<'_> {
    fn get(&mut self, limit: Limit) -> Result<Option<Lock>, CliError> {
        let now = Instant::now();
        let give_up = if self.args.does_not_wait { Some(now + TRY) } else { limit.of_rest(now) };
        let group = self.group.as_async();
        match self.wait(group.wait_for_members(self.args.wait_for), give_up)? {
            Some(Ok(())) => {}
            Some(Err(_)) => return Err(refused(&self.args.name, &LockError::Closed)),
            None => return Ok(self.not_had("too few members are online")),
        }
        loop {
            let name = self.args.name.as_str();
            let asked: Pin<Box<dyn Future<Output = _> + '_>> = match self.args.does_not_wait {
                true => Box::pin(group.lock_if_free(name)),
                false => Box::pin(group.lock(name)),
            };
            match self.wait(asked, give_up)? {
                Some(Ok(lock)) => return Ok(Some(lock)),
                Some(Err(error @ LockError::Refused { .. })) => {
                    return Ok(self.not_had(&error.to_string()));
                }
                // This node has rejoined as a new member, so its new request is last in the queue.
                Some(Err(LockError::Lost)) => self.goes_on()?,
                Some(Err(error)) => return Err(refused(name, &error)),
                None => {
                    return Ok(self.not_had("another member holds it, or there is no majority"));
                }
            }
        }
    }

    fn wait<T>(
        &mut self,
        future: impl Future<Output = T>,
        give_up: Option<Instant>,
    ) -> Result<Option<T>, CliError> {
        let mut stopped = Ok(());
        let answer = waiting::until(future, || {
            stopped = self.goes_on();
            stopped.is_err() || give_up.is_some_and(|at| Instant::now() >= at)
        });
        match answer {
            Some(answer) => Ok(Some(answer)),
            None => stopped.map(|()| None),
        }
    }

    fn not_had(&self, why: &str) -> Option<Lock> {
        self.args.say_not_had(why);
        None
    }

    fn goes_on(&mut self) -> Result<(), CliError> {
        if self.interrupt.is_asked() {
            return Err(CliError::interrupted());
        }
        match ring::drain(self.group, &mut self.ring) {
            true => Ok(()),
            false => Err(refused(&self.args.name, &LockError::Closed)),
        }
    }
}

fn refused(name: &str, error: &LockError) -> CliError {
    let fix = match error {
        LockError::TooMany { .. } => "release locks, or use another group",
        _ => "check the network with `carom doctor`, and retry",
    };
    CliError::new(format!("lock '{name}': {error}"), fix)
}

/// Maximum wait of `--try` for other members, and for the ring to report whether the lock is held.
const TRY: Duration = Duration::from_secs(10);

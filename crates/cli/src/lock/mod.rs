//! `carom lock`: a command that runs while a lock of a group is held.

mod holding;

use std::ffi::OsString;
use std::pin::Pin;
use std::time::{Duration, Instant};

use carom::{Group, Lock, LockError};
use carom_terminal::interrupt::{self, Interrupt};
use carom_terminal::{CliError, Outcome, output, units};

use crate::node::NodeArgs;
use crate::ring::{self, Limit, Part, RingArgs, RingWatch};
use crate::waiting;
use holding::Holding;

/// Run a command while holding a lock of an ordered group, like flock(1) on one machine
///
/// With --quorum-of N at all members, at most one member is granted the lock at a time. Without it,
/// this holds only among members that can reach each other: hosts that start separately, or are cut
/// off from each other, may each be granted the lock.
#[derive(clap::Args)]
#[command(after_help = EXAMPLE)]
pub(crate) struct Args {
    /// Group name
    #[arg(value_parser = units::name)]
    pub(crate) group: String,
    /// Lock name
    name: String,
    /// Command and its arguments, after `--`
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
    /// Do not wait for another holder, and at most 3 s for the ring
    #[arg(long = "try", conflicts_with = "timeout")]
    does_not_wait: bool,
    /// Maximum wait for the ring and the lock together. A ring gets at least 3 s to form; a TIME
    /// below 3 s starts once it has formed [default: until Ctrl-C]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = units::duration)]
    timeout: Option<Duration>,
    /// Exit code if the lock cannot be acquired
    #[arg(long, value_name = "CODE", default_value_t = 1, allow_hyphen_values = true)]
    conflict_code: u8,
    /// Let the command continue after the lock is lost or in doubt
    #[arg(long)]
    keep_running: bool,
    /// Time between SIGTERM and SIGKILL after the lock is lost
    #[arg(long, value_name = "TIME", default_value = "5s", allow_hyphen_values = true)]
    #[arg(value_parser = units::duration)]
    kill_after: Duration,
    /// Request the lock only when N other members are online
    #[arg(long, value_name = "N", default_value_t = 0, allow_hyphen_values = true)]
    wait_for: usize,
    /// Report members that join or leave the ring
    #[arg(long)]
    verbose: bool,
    #[command(flatten)]
    ring: RingArgs,
    #[command(flatten)]
    node: NodeArgs,
}

/// Runs `carom lock`.
///
/// # Errors
/// Fails if the group cannot be joined, or the command cannot be run.
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
    // After an orderly leave, no failure needs to be detected: the next member gets the lock at
    // once.
    group.leave();
    node.close();
    ended
}

impl Args {
    fn say_not_had(&self, why: &str) {
        let Self { group, name, .. } = self;
        output::say(format_args!("could not acquire lock {name} of {group}: {why}"));
    }
}

/// Acquisition of the lock.
struct Asking<'a> {
    args: &'a Args,
    group: &'a Group,
    interrupt: &'a Interrupt,
    ring: RingWatch,
}

impl<'a> Asking<'a> {
    /// Waits for the lock. Returns `None`, after a message, if it could not be acquired.
    fn get(&mut self, limit: Limit) -> Result<Option<Lock<'a>>, CliError> {
        let now = Instant::now();
        let give_up = if self.args.does_not_wait { Some(now + TRY) } else { limit.of_rest(now) };
        let is_over = || give_up.is_some_and(|at| Instant::now() >= at);
        while self.group.members().len() < self.args.wait_for {
            self.goes_on()?;
            if is_over() {
                return Ok(self.not_had("too few members are online"));
            }
            self.interrupt.wait(STEP);
        }
        loop {
            let (group, name) = (self.group, self.args.name.as_str());
            let asked: Pin<Box<dyn Future<Output = _> + '_>> = match self.args.does_not_wait {
                true => Box::pin(group.try_lock(name)),
                false => Box::pin(group.lock(name)),
            };
            let mut stopped = None;
            let answer = waiting::until(asked, || {
                stopped = self.goes_on().err();
                stopped.is_some() || is_over()
            });
            match answer {
                Some(Ok(lock)) => return Ok(Some(lock)),
                Some(Err(error @ LockError::Refused { .. })) => {
                    return Ok(self.not_had(&error.to_string()));
                }
                // This node has rejoined as a new member, so its new request is last in the queue.
                Some(Err(LockError::Lost)) => self.goes_on()?,
                Some(Err(error)) => return Err(refused(name, &error)),
                None => match stopped {
                    Some(error) => return Err(error),
                    None => {
                        return Ok(self.not_had("another member holds it, or there is no majority"));
                    }
                },
            }
        }
    }

    fn not_had(&self, why: &str) -> Option<Lock<'a>> {
        self.args.say_not_had(why);
        None
    }

    /// Handles pending events. Returns an error if there is no reason to wait any longer.
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
    CliError::new(format!("lock {name}: {error}"), fix)
}

const STEP: Duration = Duration::from_millis(20);
/// Maximum wait of `--try` for the ring to report whether the lock is held.
const TRY: Duration = Duration::from_secs(10);
const EXAMPLE: &str = "Examples:
  carom lock backup nightly -- ./backup.sh
  carom lock backup nightly --try -- ./backup.sh || echo skipped
  carom lock jobs leader --timeout 10s -- sh -c './write --fence $CAROM_FENCE'

The command receives CAROM_GROUP, CAROM_LOCK, and CAROM_FENCE in its environment. The fence is a
number that grows with each grant of the lock, for as long as the ring exists. A resource that the
command writes to should reject a fence smaller than the largest it has seen. If carom does not run
on a terminal, signals reach the command and all processes that it has started.

Exit codes: that of the command (128 + N if signal N ended it), --conflict-code if the lock could
not be acquired, 130 if interrupted while waiting for it, 2 usage or environment error";

//! The command, while it runs and after its lock is lost.

use std::io::IsTerminal as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use carom::{Group, Lock};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use super::Args;
use crate::error::{CliError, Outcome, plain};
use crate::interrupt::Interrupt;
use crate::output;
use crate::ring::{self, RingWatch};
use crate::serve::code;

/// A lock that is held, and what for.
pub(super) struct Holding<'a> {
    args: &'a Args,
    lock: Lock<'a>,
    ring: RingWatch,
    interrupt: &'a Interrupt,
    /// How often the user has asked to end, as far as the command was told.
    asked: u32,
    /// Whether it was told that the lock is lost.
    is_lost: bool,
    /// When the command is killed.
    kill_at: Option<Instant>,
}

impl<'a> Holding<'a> {
    pub(super) fn new(
        args: &'a Args,
        lock: Lock<'a>,
        ring: RingWatch,
        interrupt: &'a Interrupt,
    ) -> Self {
        Self { args, lock, ring, interrupt, asked: 0, is_lost: false, kill_at: None }
    }

    /// Runs the command to its end.
    ///
    /// # Errors
    /// If it cannot be run.
    pub(super) fn run(mut self, group: &Group) -> Result<Outcome, CliError> {
        let mut child = self.start()?;
        loop {
            match child.try_wait() {
                Ok(Some(status)) => return Ok(Outcome::Code(code(status))),
                Ok(None) => {}
                Err(error) => return Err(CliError::io("wait for the command", &error)),
            }
            let is_open = ring::drain(group, &mut self.ring);
            self.watch_lock(&child, is_open);
            if self.kill_at.take_if(|at| *at <= Instant::now()).is_some() {
                send(&child, Signal::SIGKILL);
                let patience = self.args.kill_after;
                output::say(format_args!("the command did not end within {patience:?}: killed"));
            }
            let asked = self.interrupt.wait_for_more(self.asked, STEP);
            if asked > self.asked {
                self.pass_on(&child, asked);
            }
        }
    }

    fn start(&self) -> Result<Child, CliError> {
        let Args { group, name, command, .. } = self.args;
        let (program, rest) = command.split_first().expect("clap requires one at least");
        let mut command = Command::new(program);
        command.args(rest).env("CAROM_GROUP", group).env("CAROM_LOCK", name);
        command.env("CAROM_FENCE", self.lock.fence().to_string());
        if !on_terminal() {
            // So that signals reach what it starts as well. On a terminal it stays in the group
            // that may read from there, and that Ctrl-C is for.
            command.process_group(0);
        }
        command.spawn().map_err(|error| {
            let cause = format!("command {}: {}", program.to_string_lossy(), plain(&error));
            CliError::new(cause, "give a program that is there and may be executed, after --")
        })
    }

    /// A lock in a partition that may not go on is in doubt: the others may have given it to
    /// somebody else, and this node will not hear of it before it is among them again.
    fn watch_lock(&mut self, child: &Child, is_open: bool) {
        let why = match (self.lock.is_held() && is_open, self.ring.is_minority) {
            (false, _) => "is lost",
            (true, true) => "is in doubt, as this partition may not go on",
            (true, false) => return,
        };
        if std::mem::replace(&mut self.is_lost, true) {
            return;
        }
        let Args { group, name, keep_running, .. } = self.args;
        let then = if *keep_running { "goes on" } else { "is ended" };
        if !keep_running {
            send(child, Signal::SIGTERM);
            self.kill_at = Some(Instant::now() + self.args.kill_after);
        }
        let text = format!("lock {name} of {group} {why}: the command {then}");
        output::say_unless_blocked(text);
    }

    /// The user wants it to end. On a terminal the command has heard that, too; elsewhere it has
    /// not.
    fn pass_on(&mut self, child: &Child, asked: u32) {
        self.asked = asked;
        match asked {
            1 if on_terminal() => {}
            1 | 2 => send(child, Signal::SIGTERM),
            _ => send(child, Signal::SIGKILL),
        }
    }
}

fn on_terminal() -> bool {
    let (input, output, error) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
    input.is_terminal() || output.is_terminal() || error.is_terminal()
}

/// Signals the command, and where it has a group of its own all that it has started.
fn send(child: &Child, signal: Signal) {
    if let Ok(id) = i32::try_from(child.id()) {
        // It was not waited for yet, so the id is its own, whether it has ended or not.
        let id = Pid::from_raw(id);
        let _ = if on_terminal() { kill(id, signal) } else { killpg(id, signal) };
    }
}

const STEP: Duration = Duration::from_millis(10);

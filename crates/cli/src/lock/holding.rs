//! Runs the command of `carom lock`, and ends it if its lock is lost.

use std::io::IsTerminal as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use carom::Lock;
use carom::blocking::Group;
use carom_terminal::interrupt::Interrupt;
use carom_terminal::{CliError, Outcome, output, plain};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use super::args::Args;
use crate::ring::{self, RingWatch};
use crate::serve::code;

pub(super) struct Holding<'a> {
    args: &'a Args,
    lock: Lock,
    ring: RingWatch,
    interrupt: &'a Interrupt,
    /// Number of interrupt requests that were forwarded to the command.
    asked: u32,
    is_lost: bool,
    kill_at: Option<Instant>,
}

impl<'a> Holding<'a> {
    pub(super) fn new(
        args: &'a Args,
        lock: Lock,
        ring: RingWatch,
        interrupt: &'a Interrupt,
    ) -> Self {
        Self { args, lock, ring, interrupt, asked: 0, is_lost: false, kill_at: None }
    }

    pub(super) fn run(mut self, group: &Group) -> Result<Outcome, CliError> {
        let mut child = self.start()?;
        loop {
            match child.try_wait() {
                Ok(Some(status)) => return Ok(Outcome::Code(code(status))),
                Ok(None) => {}
                Err(error) => return Err(CliError::io("cannot wait for the command", &error)),
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
        let (program, rest) = command.split_first().expect("clap requires at least one");
        let mut command = Command::new(program);
        command.args(rest).env("CAROM_GROUP", group).env("CAROM_LOCK", name);
        command.env("CAROM_FENCE", self.lock.fence().to_string());
        if !on_terminal() {
            // In its own process group, the command and the processes that it starts all receive
            // the signals. On a terminal, the command stays in the foreground group, which may read
            // from the terminal and receives Ctrl-C.
            command.process_group(0);
        }
        command.spawn().map_err(|error| {
            let cause = format!("cannot run '{}': {}", program.to_string_lossy(), plain(&error));
            CliError::new(cause, "use an existing, executable program after --")
        })
    }

    /// Ends the command if the lock is lost or in doubt, unless `--keep-running` is given. In a
    /// partition that may not continue, the lock is in doubt: the other partition may have granted
    /// it to another member, and this node learns of that only when it rejoins.
    fn watch_lock(&mut self, child: &Child, is_open: bool) {
        let why = match (self.lock.is_held() && is_open, self.ring.is_minority) {
            (false, _) => "is lost",
            (true, true) => "is in doubt because this partition may not continue",
            (true, false) => return,
        };
        if std::mem::replace(&mut self.is_lost, true) {
            return;
        }
        let Args { group, name, keep_running, .. } = self.args;
        let then = if *keep_running { "continues" } else { "is terminated" };
        if !keep_running {
            send(child, Signal::SIGTERM);
            self.kill_at = Some(Instant::now() + self.args.kill_after);
        }
        let text = format!("lock {name} of {group} {why}: the command {then}");
        output::say_unless_blocked(text);
    }

    /// Forwards an interrupt request. On a terminal, the command itself received the first one.
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

fn send(child: &Child, signal: Signal) {
    if let Ok(id) = i32::try_from(child.id()) {
        // The process has not been reaped, so the id is still its own even if it has ended.
        let id = Pid::from_raw(id);
        let _ = if on_terminal() { kill(id, signal) } else { killpg(id, signal) };
    }
}

const STEP: Duration = Duration::from_millis(10);

//! Losses that a thread turns on and off.

use std::io::{BufRead as _, BufReader, PipeReader, Write as _, pipe};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use carom_proto::Rng;

use crate::error::Error;
use crate::namespace::Namespace;
use crate::tool;

/// The two sets of nft between which a [`Toggle`] moves an interface.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sets {
    /// Drops everything that arrives at its interfaces.
    pub(crate) out: &'static str,
    /// Has no effect.
    pub(crate) healthy: &'static str,
}

impl Sets {
    pub(crate) fn empty(self, namespace: &Namespace, table: &str) -> Result<(), Error> {
        let Self { out, healthy } = self;
        namespace.nft(&format!("flush set {table} {out}\nflush set {table} {healthy}"))
    }
}

/// An interface in one of two sets of nft, moved by one process within 0.3 ms. A process per change
/// would take 5 ms.
#[derive(Debug)]
pub(crate) struct Toggle {
    namespace: Namespace,
    table: String,
    sets: Sets,
    interface: String,
    nft: Child,
    stdin: ChildStdin,
    output: BufReader<PipeReader>,
}

impl Toggle {
    /// Starts the process, and ends an outage.
    pub(crate) fn open(
        namespace: &Namespace,
        table: &str,
        sets: Sets,
        interface: &str,
    ) -> Result<Self, Error> {
        sets.empty(namespace, table)?;
        let no_pipe = |error| Error::io("cannot open a pipe", &error);
        let (output, stdout) = pipe().map_err(no_pipe)?;
        let stderr = stdout.try_clone().map_err(no_pipe)?;
        let mut command = namespace.command("nft", &["-e", "-i"]);
        command.stdin(Stdio::piped()).stdout(stdout).stderr(stderr);
        let mut nft = command.spawn().map_err(|error| tool::not_started(&command, &error))?;
        let stdin = nft.stdin.take().expect("it is piped");
        let (table, interface) = (table.to_owned(), interface.to_owned());
        let namespace = namespace.clone();
        let output = BufReader::new(output);
        let mut toggle = Self { namespace, table, sets, interface, nft, stdin, output };
        let Self { table, sets, interface, .. } = &toggle;
        // The first command of a process takes longer, because it loads the tables.
        let line = format!("add element {table} {} {{ {interface} }}", sets.healthy);
        toggle.write(&line)?;
        Ok(toggle)
    }

    /// Begins or ends an outage, and waits until this has taken effect.
    pub(crate) fn set(&mut self, is_out: bool) -> Result<(), Error> {
        let Self { table, sets: Sets { out, healthy }, interface, .. } = self;
        let (to, from) = if is_out { (out, healthy) } else { (healthy, out) };
        // nft echoes additions and not deletions, so that each change needs one.
        let line = format!(
            "add element {table} {to} {{ {interface} }}; \
             delete element {table} {from} {{ {interface} }}"
        );
        self.write(&line)
    }

    /// Ends an outage by another process.
    pub(crate) fn reset(&self) -> Result<(), Error> {
        self.sets.empty(&self.namespace, &self.table)
    }

    fn write(&mut self, line: &str) -> Result<(), Error> {
        let lost = |error: &std::io::Error| Error::io("nft has ended", error);
        writeln!(self.stdin, "{line}").map_err(|error| lost(&error))?;
        let mut said = String::new();
        // nft ends the echo of a change with the number of the generation.
        while !said.starts_with("# new generation") {
            said.clear();
            let bytes = self.output.read_line(&mut said).map_err(|error| lost(&error))?;
            if bytes == 0 || said.contains("Error: ") {
                let cause = format!("nft refused '{line}': {}", said.trim());
                return Err(Error::new(cause, "use nft 1.0 or later"));
            }
        }
        Ok(())
    }
}

impl Drop for Toggle {
    fn drop(&mut self) {
        // Both calls fail if nft has ended by itself.
        let _ = self.nft.kill();
        let _ = self.nft.wait();
    }
}

/// A thread that alternates between no losses and a loss of everything, until it is dropped.
#[derive(Debug)]
pub(crate) struct Driver {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Driver {
    /// Starts outages of `length` in each `period`.
    pub(crate) fn periodic(
        toggle: Toggle,
        length: Duration,
        period: Duration,
    ) -> Result<Self, Error> {
        Self::start(toggle, std::iter::repeat((period.saturating_sub(length), length)))
    }

    /// Starts outages with exponentially distributed durations and gaps.
    pub(crate) fn random(
        toggle: Toggle,
        good: Duration,
        bad: Duration,
        seed: u64,
    ) -> Result<Self, Error> {
        let mut rng = Rng::new(seed);
        let mut draw = move |mean: Duration| mean.mul_f64(-(1.0 - rng.fraction()).ln());
        Self::start(toggle, std::iter::from_fn(move || Some((draw(good), draw(bad)))))
    }

    fn start(
        mut toggle: Toggle,
        durations: impl Iterator<Item = (Duration, Duration)> + Send + 'static,
    ) -> Result<Self, Error> {
        let (stop, stopped) = channel();
        let run = move || {
            let mut next = Instant::now();
            for (good, bad) in durations {
                for (is_on, before) in [(true, good), (false, bad)] {
                    next += before;
                    // Without its nft, the thread can change nothing. The losses then stay as they
                    // are until they are replaced.
                    if is_stopped(&stopped, next) || toggle.set(is_on).is_err() {
                        return;
                    }
                }
            }
        };
        let thread = thread::Builder::new().name("outages".to_owned()).spawn(run);
        let thread = thread.map_err(|error| Error::io("cannot start a thread", &error))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported when it occurred.
            let _ = thread.join();
        }
    }
}

/// Waits until `time`. Returns `true` at once when the driver is dropped.
fn is_stopped(stopped: &Receiver<()>, time: Instant) -> bool {
    let left = time.saturating_duration_since(Instant::now());
    stopped.recv_timeout(left) == Err(RecvTimeoutError::Disconnected)
}

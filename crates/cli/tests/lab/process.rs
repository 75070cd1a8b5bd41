#![allow(dead_code, reason = "each test uses a part")]

use std::io::{self, BufRead as _, BufReader, BufWriter, Read, Write as _};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A child process, killed if a test ends early. `ip netns exec` replaces itself with the program.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    /// Exit code after [`Running::end`]; `None` if a signal ended the process.
    pub(crate) code: Option<i32>,
    pub(crate) said: Lines,
    pub(crate) wrote: Lines,
}

#[derive(Debug)]
pub(crate) struct Lines {
    from: Receiver<String>,
    pub(crate) seen: Vec<String>,
}

pub(crate) fn carom(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_carom"));
    command.args(args).stdin(Stdio::null());
    command
}

pub(crate) fn parsed(line: &str) -> serde_json::Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

pub(crate) fn start(args: &[&str]) -> Running {
    Running::start(carom(args))
}

/// Returns a command that runs `told` without standard input or a writable standard error.
pub(crate) fn unheard(told: &Command) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$0\" \"$@\" 2> /dev/full"]).arg(told.get_program());
    command.args(told.get_args()).stdin(Stdio::null());
    for (name, value) in told.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    if let Some(folder) = told.get_current_dir() {
        command.current_dir(folder);
    }
    command
}

pub(crate) fn run(args: &[&str], code: i32) -> Running {
    start(args).ended_with(code)
}

impl Running {
    pub(crate) fn start(command: Command) -> Self {
        Self::start_into(command, Stdio::piped())
    }

    pub(crate) fn start_piped(mut command: Command) -> Self {
        command.stdin(Stdio::piped());
        Self::start(command)
    }

    /// Starts `command` with another standard output, so that [`Running::wrote`] stays empty.
    pub(crate) fn start_into(mut command: Command, stdout: Stdio) -> Self {
        let child = command.stdout(stdout).stderr(Stdio::piped()).spawn();
        let mut child = child.expect("ip is installed");
        let said = Lines::of(child.stderr.take().expect("it is piped"));
        let wrote = match child.stdout.take() {
            Some(stdout) => Lines::of(stdout),
            None => Lines::of(io::empty()),
        };
        Self { child, code: None, said, wrote }
    }

    pub(crate) fn stdin(&mut self) -> ChildStdin {
        self.child.stdin.take().expect("it is piped and taken once")
    }

    /// Writes `lines` on a thread, and closes standard input. The thread ends with the child.
    pub(crate) fn feed(&mut self, lines: impl Iterator<Item = String> + Send + 'static) {
        let stdin = self.stdin();
        thread::spawn(move || {
            let mut stdin = BufWriter::new(stdin);
            for line in lines {
                if writeln!(stdin, "{line}").is_err() {
                    return;
                }
            }
        });
    }

    pub(crate) fn interrupt(&self) {
        self.signal(Signal::SIGINT);
    }

    pub(crate) fn kill(&mut self) {
        self.signal(Signal::SIGKILL);
        self.child.wait().expect("it is our child");
    }

    pub(crate) fn end(&mut self) -> ExitStatus {
        self.said.read_all("standard error");
        self.wrote.read_all("standard output");
        let status = self.child.wait().expect("it is our child");
        self.code = status.code();
        status
    }

    pub(crate) fn ended(mut self) -> Self {
        self.end();
        self
    }

    pub(crate) fn ended_with(mut self, code: i32) -> Self {
        self.end_with(code);
        self
    }

    pub(crate) fn stop(&mut self) {
        self.interrupt();
        self.end_with(0);
    }

    /// Asserts that the process ends with code 2, this cause and this fix. Returns standard error.
    pub(crate) fn assert_refused(mut self, cause: &str, fix: &str) -> Vec<String> {
        self.end_with(2);
        let said = std::mem::take(&mut self.said.seen);
        let begin = said.iter().position(|line| line.starts_with("error: ")).unwrap_or_default();
        let [error, remedy] = &said[begin..] else { panic!("not two lines: {said:#?}") };
        assert!(error.starts_with("error: ") && error.contains(cause), "{cause}: {said:#?}");
        assert!(remedy.starts_with("fix: ") && remedy.len() > 10, "{said:#?}");
        assert!(remedy.contains(fix), "{fix}: {said:#?}");
        said
    }

    pub(crate) fn end_with(&mut self, code: i32) {
        let status = self.end();
        assert_eq!(status.code(), Some(code), "{:#?}", self.said.seen);
    }

    pub(crate) fn end_saying(&mut self, text: &str, code: i32) {
        self.said.wait_for(text);
        self.end_with(code);
    }

    /// Parses all of standard output as JSON. The process must have ended.
    pub(crate) fn json(&self) -> serde_json::Value {
        let text = self.wrote.seen.join("\n");
        serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("{error} in {text:?}; {:#?}", self.said.seen))
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.id(), signal).expect("our own child can be signalled");
    }

    pub(crate) fn id(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).expect("a process id is small"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both calls fail if the process has ended, as it should have.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Lines {
    fn of(stream: impl Read + Send + 'static) -> Self {
        let (to, from) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                if to.send(line).is_err() {
                    return;
                }
            }
        });
        Self { from, seen: Vec::new() }
    }

    pub(crate) fn wait_for(&mut self, text: &str) -> String {
        let what = format!("a line with {text:?}");
        self.wait_until(&what, |line| line.contains(text))
    }

    pub(crate) fn wait_until(&mut self, what: &str, mut is_it: impl FnMut(&str) -> bool) -> String {
        let give_up = Instant::now() + PATIENCE;
        while let Some(line) = self.next(give_up, what) {
            if is_it(&line) {
                return line;
            }
        }
        panic!("the process ended without {what}, after {:#?}", self.tail());
    }

    fn read_all(&mut self, what: &str) {
        let give_up = Instant::now() + PATIENCE;
        while self.next(give_up, &format!("the end of {what}")).is_some() {}
    }

    fn next(&mut self, give_up: Instant, what: &str) -> Option<String> {
        let left = give_up.saturating_duration_since(Instant::now());
        match self.from.recv_timeout(left) {
            Ok(line) => {
                self.seen.push(line.clone());
                Some(line)
            }
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => {
                panic!("{what} did not arrive, after {:#?}", self.tail())
            }
        }
    }

    /// Returns the last lines, because the full output may have thousands.
    fn tail(&self) -> &[String] {
        &self.seen[self.seen.len().saturating_sub(TAIL)..]
    }
}

const TAIL: usize = 20;

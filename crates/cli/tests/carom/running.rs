//! Running process of the binary, and its output.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn carom(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_carom"));
    command.args(args).stdin(Stdio::null());
    command
}

pub(crate) fn run(args: &[&str]) -> Output {
    run_with(args, &[])
}

pub(crate) fn run_with(args: &[&str], more: &[String]) -> Output {
    let mut running = Running::start(args, more, Stdio::null());
    let stdout = running.stdout();
    let status = running.end();
    let stdout = stdout.join().expect("the reader does not panic").into_bytes();
    let mut lines = std::mem::take(&mut running.seen);
    lines.extend(running.lines.iter());
    Output { status, stdout, stderr: lines.join("\n").into_bytes() }
}

pub(crate) fn alone(multicast_port: u16) -> [String; 4] {
    let port = multicast_port.to_string();
    ["--interface".into(), "127.0.0.1".into(), "--multicast-port".into(), port]
}

/// Child process whose standard error is read line by line while it runs. It is killed if a test
/// ends early.
pub(crate) struct Running {
    pub(crate) child: Child,
    pub(crate) lines: Receiver<String>,
    pub(crate) seen: Vec<String>,
}

impl Running {
    pub(crate) fn start(args: &[&str], more: &[String], stdin: Stdio) -> Self {
        let mut child = carom(args)
            .args(more)
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary was built for this test");
        let stderr = child.stderr.take().expect("it is piped");
        let (to, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if to.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, lines, seen: Vec::new() }
    }

    pub(crate) fn await_line(&mut self, text: &str) -> String {
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    if line.contains(text) {
                        return line;
                    }
                }
                Err(error) => panic!("no line with {text:?} ({error}) after {:#?}", self.seen),
            }
        }
    }

    pub(crate) fn interrupt(&self) {
        self.signal(Signal::SIGINT);
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).expect("a process id is small");
        kill(Pid::from_raw(id), signal).expect("our own child can be signalled");
    }

    pub(crate) fn stdout(&mut self) -> thread::JoinHandle<String> {
        let mut stdout = self.child.stdout.take().expect("it is piped and taken once");
        thread::spawn(move || {
            let mut text = String::new();
            stdout.read_to_string(&mut text).expect("what carom writes here is text");
            text
        })
    }

    pub(crate) fn end(&mut self) -> ExitStatus {
        let give_up = Instant::now() + PATIENCE;
        while Instant::now() < give_up {
            if let Some(status) = self.child.try_wait().expect("it is our child") {
                return status;
            }
            thread::sleep(Duration::from_millis(5));
        }
        let rest: Vec<String> = self.lines.try_iter().collect();
        panic!("it does not end; it said {:#?}, {rest:#?}", self.seen);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both calls fail if the process has ended, as it should have.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

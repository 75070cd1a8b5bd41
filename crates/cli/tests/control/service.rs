//! A control process, and nodes that find each other by it.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::PATIENCE;
use crate::ports::free_port;
use crate::process::Running;

/// A running `carom control`.
pub(crate) struct Service {
    pub(crate) running: Running,
    pub(crate) address: String,
    pub(crate) http: String,
    store: PathBuf,
    /// Where the store is, if nobody else looks after that.
    _folder: Option<TempDir>,
}

/// A running `carom sub GROUP --json`.
pub(crate) struct Node {
    pub(crate) running: Running,
    pub(crate) id: String,
}

pub(crate) fn carom(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_carom"));
    command.args(args).stdin(Stdio::null());
    command
}

/// Starts it and lets it run.
pub(crate) fn start(args: &[&str]) -> Running {
    Running::start(carom(args))
}

/// Runs it to its end, which must have this code.
pub(crate) fn run(args: &[&str], code: i32) -> Running {
    let mut running = start(args);
    running.end_with(code);
    running
}

/// Asserts that it is refused by a line of cause with `cause` in it and a line of fix.
pub(crate) fn assert_refused(args: &[&str], cause: &str) {
    let refused = run(args, 2);
    let [.., error, fix] = &refused.said.seen[..] else { panic!("{:#?}", refused.said.seen) };
    assert!(error.starts_with("error: ") && error.contains(cause), "{error}");
    assert!(fix.starts_with("fix: ") && fix.len() > "fix: ".len(), "{fix}");
}

impl Service {
    /// A service with a store of its own, at free ports.
    pub(crate) fn start(more: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let service = Self::start_in(folder.path(), more);
        Self { _folder: Some(folder), ..service }
    }

    /// A service with its store there, at free ports.
    pub(crate) fn start_in(store: &Path, more: &[&str]) -> Self {
        Self::start_as(carom(&[]), store, more)
    }

    /// A service whose process may have this many file descriptors.
    pub(crate) fn start_with_descriptors(limit: u32) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -n {limit}; exec \"$0\" \"$@\"")]);
        command.arg(env!("CARGO_BIN_EXE_carom")).stdin(Stdio::null());
        let folder = tempfile::tempdir().expect("a folder for the test");
        let service = Self::start_as(command, folder.path(), &[]);
        Self { _folder: Some(folder), ..service }
    }

    /// A service that this command runs, at free ports.
    fn start_as(command: Command, store: &Path, more: &[&str]) -> Self {
        let listen = format!("127.0.0.1:{}", free_port());
        let (running, address, http) = serve(command, store, &listen, more);
        Self { running, address, http, store: store.to_owned(), _folder: None }
    }

    /// Arguments of a second process on the same store.
    pub(crate) fn on_same_store<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        let store = self.store.to_str().expect("the folder has a plain name");
        [&["control", "--store", store, "--no-http"], more].concat()
    }

    /// The service again, after it has ended, with what it has stored and where it was.
    pub(crate) fn start_again(&mut self, more: &[&str]) {
        let address = self.address.clone();
        (self.running, self.address, self.http) = serve(carom(&[]), &self.store, &address, more);
    }

    /// What `carom control status --json` tells.
    pub(crate) fn status(&self) -> Value {
        run(&["control", "status", "--json", "--http", &self.http], 0).json()
    }

    /// What `carom control status` tells people: standard error, then standard output.
    pub(crate) fn told(&self) -> String {
        let status = run(&["control", "status", "--http", &self.http], 0);
        [&status.said.seen[..], &status.wrote.seen[..]].concat().join("\n")
    }

    /// Waits until the status is as it should be.
    pub(crate) fn await_status(&self, what: &str, mut is_it: impl FnMut(&Value) -> bool) -> Value {
        let give_up = Instant::now() + PATIENCE;
        loop {
            let status = self.status();
            if is_it(&status) {
                return status;
            }
            assert!(Instant::now() < give_up, "no {what} in {status:#}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// What its HTTP server answers to a GET.
    pub(crate) fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.http).expect("it listens");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            .expect("it reads");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("it answers");
        text
    }

    /// A node that is in `group`.
    pub(crate) fn node(&self, group: &str, more: &[&str]) -> Node {
        let flags = ["--control", &self.address, "--interface", "127.0.0.1"];
        let running = start(&[&["sub", group, "--json"], &flags[..], more].concat());
        Node::joined(running, self)
    }
}

impl Node {
    /// Waits until it has joined.
    fn joined(mut running: Running, service: &Service) -> Self {
        let joined = running.said.wait_for("joined ");
        let after = joined.split(" at ").nth(1).expect("it says where it is");
        let endpoint = after.split(',').next().unwrap_or_default().to_owned();
        let status = service.status();
        let nodes = status["nodes"].as_array().expect("a list");
        let own = nodes.iter().find(|node| node["endpoint"] == endpoint.as_str());
        let id = own.and_then(|node| node["node"].as_str()).expect("the service knows it");
        Self { id: id.to_owned(), running }
    }

    /// Waits until it is told that this happened to that node.
    pub(crate) fn await_change(&mut self, node: &str, change: &str) {
        self.running.wrote.wait_until(&format!("{node} {change}"), |line| {
            line.contains(node) && line.contains(&format!("\"change\":\"{change}\""))
        });
    }
}

/// The process, where nodes reach it and where it tells its status.
fn serve(
    mut command: Command,
    store: &Path,
    listen: &str,
    more: &[&str],
) -> (Running, String, String) {
    let store = store.to_str().expect("the folder has a plain name");
    let flags = ["control", "--store", store, "--listen", listen, "--http", "127.0.0.1:0"];
    command.args(flags).arg("--json").args(more);
    let mut running = Running::start(command);
    let line = running.wrote.wait_for("address");
    let serving: Value = serde_json::from_str(&line).expect("it is JSON");
    let text = |field: &str| serving[field].as_str().expect("it is text").to_owned();
    (running, text("address"), text("http"))
}

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::ports::free_port;
use crate::process::{PATIENCE, Running, carom, parsed, run, start};

pub(crate) struct Service {
    pub(crate) running: Running,
    pub(crate) address: String,
    pub(crate) http: String,
    store: PathBuf,
    /// Directory of the store, if the service owns it.
    _folder: Option<TempDir>,
}

pub(crate) struct Node {
    pub(crate) running: Running,
    pub(crate) id: String,
}

pub(crate) fn assert_refused(args: &[&str], cause: &str) {
    start(args).assert_refused(cause, "");
}

impl Service {
    pub(crate) fn start(more: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let service = Self::start_in(folder.path(), more);
        Self { _folder: Some(folder), ..service }
    }

    pub(crate) fn start_in(store: &Path, more: &[&str]) -> Self {
        Self::start_as(carom(&[]), store, more)
    }

    pub(crate) fn start_with_descriptors(limit: u32) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -n {limit}; exec \"$0\" \"$@\"")]);
        command.arg(env!("CARGO_BIN_EXE_carom")).stdin(Stdio::null());
        let folder = tempfile::tempdir().expect("a folder for the test");
        let service = Self::start_as(command, folder.path(), &[]);
        Self { _folder: Some(folder), ..service }
    }

    fn start_as(command: Command, store: &Path, more: &[&str]) -> Self {
        let listen = format!("127.0.0.1:{}", free_port());
        let (running, address, http) = serve(command, store, &listen, more);
        Self { running, address, http, store: store.to_owned(), _folder: None }
    }

    pub(crate) fn on_same_store<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        let store = self.store.to_str().expect("a UTF-8 path");
        [&["registry", "--store", store, "--no-http"], more].concat()
    }

    pub(crate) fn start_again(&mut self, more: &[&str]) {
        let address = self.address.clone();
        (self.running, self.address, self.http) = serve(carom(&[]), &self.store, &address, more);
    }

    pub(crate) fn status(&self) -> Value {
        run(&["registry", "status", "--json", "--http", &self.http], 0).json()
    }

    pub(crate) fn told(&self) -> String {
        let status = run(&["registry", "status", "--http", &self.http], 0);
        [&status.said.seen[..], &status.wrote.seen[..]].concat().join("\n")
    }

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

    pub(crate) fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.http).expect("it listens");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            .expect("it reads");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("it answers");
        text
    }

    pub(crate) fn node(&self, group: &str, more: &[&str]) -> Node {
        let flags = ["--registry", &self.address, "--interface", "127.0.0.1"];
        let running = start(&[&["sub", group, "--json"], &flags[..], more].concat());
        Node::joined(running, self)
    }
}

impl Node {
    fn joined(mut running: Running, service: &Service) -> Self {
        let joined = running.said.wait_for("joined ");
        let after = joined.split(" at ").nth(1).expect("it reports its address");
        let endpoint = after.split(',').next().unwrap_or_default().to_owned();
        let status = service.status();
        let nodes = status["nodes"].as_array().expect("a list");
        let own = nodes.iter().find(|node| node["endpoint"] == endpoint.as_str());
        let id = own.and_then(|node| node["node"].as_str()).expect("the service knows it");
        Self { id: id.to_owned(), running }
    }

    pub(crate) fn await_change(&mut self, node: &str, change: &str) {
        self.running.wrote.wait_until(&format!("{node} {change}"), |line| {
            line.contains(node) && line.contains(&format!("\"change\":\"{change}\""))
        });
    }
}

fn serve(
    mut command: Command,
    store: &Path,
    listen: &str,
    more: &[&str],
) -> (Running, String, String) {
    let store = store.to_str().expect("a UTF-8 path");
    let flags = ["registry", "--store", store, "--listen", listen, "--http", "127.0.0.1:0"];
    command.args(flags).arg("--json").args(more);
    let mut running = Running::start(command);
    let line = running.wrote.wait_for("address");
    let serving = parsed(&line);
    let text = |field: &str| serving[field].as_str().expect("it is text").to_owned();
    (running, text("address"), text("http"))
}

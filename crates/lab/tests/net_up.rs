//! A lab that other commands use while `carom-lab net up` runs.
#![cfg(target_os = "linux")]

#[path = "../../cli/tests/lab/skipping.rs"]
mod skipping;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A process, killed when it is dropped.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        // Both calls fail if it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Guard {
    fn start(command: &mut Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Self(command.spawn().expect("the binary was built for this test"))
    }

    /// Waits for the end. Returns the exit code, and the rest of both outputs.
    fn end(&mut self) -> (Option<i32>, String, String) {
        let status = eventually("the end of a process", || self.0.try_wait().expect("it exists"));
        let (mut stdout, mut stderr) = (String::new(), String::new());
        let output = self.0.stdout.as_mut().expect("it is piped");
        output.read_to_string(&mut stdout).expect("it is text");
        let output = self.0.stderr.as_mut().expect("it is piped");
        output.read_to_string(&mut stderr).expect("it is text");
        (status.code(), stdout, stderr)
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.0.id().to_string()]).status();
        assert!(sent.expect("it is installed").success());
    }
}

/// A running `net up`.
struct Up {
    process: Guard,
    /// The directory in which commands find the lab.
    temporary: Arc<TempDir>,
}

impl Up {
    /// Starts a lab of two hosts. Returns `None` where that is not possible.
    fn start() -> Option<Self> {
        Self::start_in(&Arc::new(TempDir::new().expect("a folder")))
    }

    fn start_in(temporary: &Arc<TempDir>) -> Option<Self> {
        let mut command = lab(temporary.path());
        let mut process = Guard::start(command.args(["net", "up", "--json"]));
        let mut line = String::new();
        let stdout = process.0.stdout.as_mut().expect("it is piped");
        BufReader::new(stdout).read_line(&mut line).expect("it is text");
        let mut up = Self { process, temporary: Arc::clone(temporary) };
        if line.is_empty() {
            let (_, _, text) = up.process.end();
            assert!(text.contains("user namespaces") || text.contains("not installed"), "{text}");
            skipping::lacking(&text.replace('\n', "; "));
            return None;
        }
        Some(up)
    }

    /// Starts a command of `carom-lab net`.
    fn start_net(&self, args: &[&str]) -> Guard {
        Guard::start(lab(self.temporary.path()).arg("net").args(args))
    }

    fn run(&self, args: &[&str]) -> Output {
        lab(self.temporary.path()).args(args).output().expect("the binary was built")
    }

    /// Runs a command of `carom-lab net` that must succeed. Returns its standard output.
    fn net(&self, args: &[&str]) -> String {
        let output = self.run(&[&["net"], args].concat());
        assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Asserts that a command of `carom-lab net` fails with this error. Returns its fix.
    fn refusal(&self, args: &[&str], error: &str) -> String {
        let output = self.run(&[&["net"], args].concat());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        let (cause, fix) = said.split_once("\nfix: ").expect("there is a fix");
        assert_eq!(cause, format!("error: {error}"));
        fix.trim_end().to_owned()
    }

    /// Sends datagrams from one host to a closed port of another. Returns the number that arrives,
    /// which is awaited unless it is 0.
    fn deliver(&self, from: &str, to: usize, sent: u64, arrives: bool) -> u64 {
        let before = self.arrivals(to);
        let script = format!(
            "payload=$(printf %01000d 0); for _ in $(seq {sent}); do \
                echo $payload > /dev/udp/10.77.1.{to}/9; done"
        );
        self.net(&["exec", from, "--", "bash", "-c", &script]);
        let give_up = Instant::now() + if arrives { PATIENCE } else { SILENCE };
        while self.arrivals(to) < before + sent && Instant::now() < give_up {
            std::thread::sleep(Duration::from_millis(20));
        }
        self.arrivals(to) - before
    }

    fn assert_delivers(&self, from: &str, to: usize) {
        assert_eq!(self.deliver(from, to, 20, true), 20, "from {from} to h{to}");
    }

    fn assert_loses(&self, from: &str, to: usize) {
        assert_eq!(self.deliver(from, to, 20, false), 0, "from {from} to h{to}");
    }

    /// Waits until a host loses everything.
    fn await_silence(&self, from: &str, to: usize) {
        eventually("an outage", || (self.deliver(from, to, 5, false) == 0).then_some(()));
    }

    /// Returns the number of datagrams that a host has received on closed ports.
    fn arrivals(&self, host: usize) -> u64 {
        let counters = self.net(&["exec", &format!("h{host}"), "--", "cat", "/proc/net/snmp"]);
        let mut lines = counters.lines().filter_map(|line| line.strip_prefix("Udp: "));
        let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
        let at = names.split(' ').position(|name| name == "NoPorts").expect("it is counted");
        values.split(' ').nth(at).and_then(|count| count.parse().ok()).expect("it is a number")
    }

    fn socket(&self) -> PathBuf {
        let folder = std::fs::read_dir(self.temporary.path()).expect("it exists").next();
        folder.expect("the lab has a folder").expect("it is readable").path().join("control")
    }

    fn folders(&self) -> usize {
        std::fs::read_dir(self.temporary.path()).expect("it exists").count()
    }
}

/// Returns the first value of `attempt`, which may take some attempts.
fn eventually<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let give_up = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = attempt() {
            return value;
        }
        assert!(Instant::now() < give_up, "{what} did not occur in {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn lab(temporary: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_carom-lab"));
    command.env("TMPDIR", temporary);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn commands_find_and_enter_a_running_lab_until_its_end() {
    let Some(mut up) = Up::start() else { return };
    let listed = text(&up.run(&["net", "list", "--json"]).stdout);
    let listed: serde_json::Value = serde_json::from_str(&listed).expect("it is JSON");
    assert_eq!(listed["labs"][0]["hosts"][1]["address"], "10.77.1.2");

    let script = "ip -br address show eth0; exit 5";
    let output = up.run(&["net", "exec", "h2", "--", "sh", "-c", script]);
    assert_eq!(output.status.code(), Some(5), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("10.77.1.2/16"), "{}", text(&output.stdout));

    let output = up.run(&["net", "exec", "h3", "--", "true"]);
    let refusal = "error: the lab has no host 'h3'\nfix: use h1 to h2\n";
    assert_eq!(text(&output.stderr), refusal);

    up.process.signal("-INT");
    assert_eq!(up.process.end().0, Some(0));
    assert_eq!(up.folders(), 0);
}

#[test]
fn cut_and_heal_change_one_direction_or_both() {
    let Some(up) = Up::start() else { return };
    let printed = up.net(&["cut", "h1", "h2", "--one-way", "--json"]);
    let printed: serde_json::Value = serde_json::from_str(&printed).expect("it is JSON");
    let lab = up.net(&["list", "--json"]);
    let lab: serde_json::Value = serde_json::from_str(&lab).expect("it is JSON");
    let lab = &lab["labs"][0]["name"];
    let wanted = serde_json::json!({
        "lab": lab, "change": "cut", "from": "h1", "to": "h2", "one_way": true
    });
    assert_eq!(printed, wanted);
    up.assert_loses("h1", 2);
    up.assert_delivers("h2", 1);
    assert_eq!(up.net(&["cut", "h1", "h2"]), "cut h1 and h2\n");
    up.assert_loses("h1", 2);
    up.assert_loses("h2", 1);
    assert_eq!(up.net(&["heal", "h2", "h1"]), "healed h2 and h1\n");
    up.assert_delivers("h1", 2);
    up.assert_delivers("h2", 1);
    up.net(&["cut", "h2", "h1"]);
    up.assert_loses("h1", 2);
    assert_eq!(up.net(&["heal"]), "healed all connections\n");
    up.assert_delivers("h1", 2);
    up.assert_delivers("h2", 1);
}

#[test]
fn loss_and_rate_of_a_host_change_until_they_are_none() {
    let Some(up) = Up::start() else { return };
    assert_eq!(up.net(&["loss", "h2", "100%"]), "losses of h2: 100%\n");
    up.assert_loses("h1", 2);
    up.assert_delivers("h2", 1);
    up.net(&["loss", "h2", "none"]);
    up.assert_delivers("h1", 2);
    // The burst of the limit is 66 kB, and a second has one datagram more.
    assert_eq!(up.net(&["rate", "h2", "8000"]), "rate of h2: 8000 bit/s\n");
    let passed = up.deliver("h1", 2, 200, false);
    assert!((1..150).contains(&passed), "{passed}");
    assert_eq!(up.net(&["rate", "h2", "none"]), "rate of h2: no limit\n");
    up.assert_delivers("h1", 2);
}

#[test]
fn outage_loses_everything_until_it_is_over() {
    let Some(up) = Up::start() else { return };
    let mut outage = up.start_net(&["outage", "h2", "5s"]);
    let mut rounds = Vec::new();
    while outage.0.try_wait().expect("it exists").is_none() {
        rounds.push(up.deliver("h1", 2, 5, false));
    }
    assert_eq!(outage.end().1, "h2 had an outage of 5000 ms\n");
    // The first round may precede the beginning, and the last one may follow the end.
    let during: Vec<_> = rounds.iter().skip_while(|arrived| **arrived > 0).collect();
    let (_last, during) = during.split_last().expect("a round is in the outage");
    assert!(!during.is_empty() && during.iter().all(|arrived| **arrived == 0), "{rounds:?}");
    up.assert_delivers("h1", 2);
}

#[test]
fn losses_change_during_an_outage_and_a_second_is_refused() {
    let Some(up) = Up::start() else { return };
    let _outage = up.start_net(&["outage", "h2", "60min"]);
    up.await_silence("h1", 2);
    assert_eq!(up.net(&["loss", "h2", "none"]), "losses of h2: none\n");
    up.assert_loses("h1", 2);
    up.refusal(&["outage", "h2", "1s"], "h2 already has an outage");
}

#[test]
fn outage_ends_with_the_command_that_began_it() {
    let Some(up) = Up::start() else { return };
    let mut outage = up.start_net(&["outage", "h2", "60min"]);
    up.await_silence("h1", 2);
    outage.signal("-STOP");
    outage.signal("-CONT");
    up.assert_loses("h1", 2);
    assert_eq!(outage.0.try_wait().expect("it exists"), None, "it has survived a pause");
    outage.signal("-INT");
    outage.end();
    let has_ended = || (up.deliver("h1", 2, 5, false) == 5).then_some(());
    eventually("the end of the outage", has_ended);
    up.net(&["outage", "h2", "1ms"]);
}

#[test]
fn requests_with_numbers_out_of_range_are_refused() {
    let Some(up) = Up::start() else { return };
    for request in [
        r#"{"change":"outage","host":"h2","length_ms":3600001}"#,
        r#"{"change":"rate","host":"h2","bits_per_second":7999}"#,
    ] {
        let mut stream = UnixStream::connect(up.socket()).expect("the lab accepts");
        stream.set_read_timeout(Some(PATIENCE)).expect("it is open");
        writeln!(stream, "{request}").expect("the lab reads");
        let mut reply = String::new();
        stream.read_to_string(&mut reply).expect("the lab replies");
        assert!(reply.contains("the request is invalid"), "{reply}");
    }
}

#[test]
fn clients_that_neither_send_nor_read_block_no_change() {
    let Some(up) = Up::start() else { return };
    let silent: Vec<UnixStream> =
        (0..20).map(|_| UnixStream::connect(up.socket()).expect("the lab accepts")).collect();
    let mut endless = UnixStream::connect(up.socket()).expect("the lab accepts");
    // The lab refuses a line of this length before its end.
    let sent = endless.write_all(&[b'x'; 1 << 20]);
    let mut reply = String::new();
    let read = endless.read_to_string(&mut reply);
    assert!(sent.is_err() || read.is_err() || reply.contains("the request is invalid"), "{reply}");
    up.net(&["cut", "h1", "h2"]);
    up.assert_loses("h1", 2);
    drop(silent);
}

#[test]
fn a_change_is_refused_at_the_limit_of_connections() {
    let Some(up) = Up::start() else { return };
    // As many as a lab serves. It accepts them in their order.
    let silent: Vec<UnixStream> =
        (0..32).map(|_| UnixStream::connect(up.socket()).expect("the lab accepts")).collect();
    let output = up.run(&["net", "heal"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.starts_with("error: cannot reach the lab "), "{said}");
    let fix = "fix: try again: a lab serves a limited number of requests at a time\n";
    assert!(said.ends_with(fix), "{said}");
    drop(silent);
    let is_served = || up.run(&["net", "heal"]).status.success().then_some(());
    eventually("a reply after the connections have ended", is_served);
}

#[test]
fn changes_that_are_not_possible_are_refused_with_a_fix() {
    let Some(up) = Up::start() else { return };
    let fix = up.refusal(&["cut", "h1", "h3"], "the lab has no host 'h3'");
    assert_eq!(fix, "use h1 to h2");
    let fix = up.refusal(&["cut", "h1", "h1"], "h1 cannot be cut off from itself");
    assert_eq!(fix, "use the names of two hosts");
    let fix = up.refusal(&["loss", "h1", "storm:1s"], "<LOSS>: losses 'storm:1s' are invalid");
    assert!(fix.starts_with("use none, a share such as 1%"), "{fix}");
    let fix = up.refusal(&["rate", "h1", "fast"], "<BITS>: rate 'fast' is invalid");
    assert!(fix.contains("at least 8000"), "{fix}");
    let fix = up.refusal(&["outage", "h1", "0ms"], "<TIME>: outage '0ms' is invalid");
    assert_eq!(fix, "use whole milliseconds from 1ms to 60min");
}

#[test]
fn change_without_a_name_is_refused_while_two_labs_run() {
    let Some(up) = Up::start() else { return };
    let Some(_second) = Up::start_in(&up.temporary) else { panic!("the first lab has started") };
    let fix = up.refusal(&["heal"], "2 labs are running");
    let names = fix.strip_prefix("use --lab with one of ").expect("the names are listed");
    for name in names.split(", ") {
        assert_eq!(up.net(&["heal", "--lab", name]), "healed all connections\n");
    }
}

#[test]
fn change_of_a_lab_that_ends_meanwhile_is_refused() {
    let Some(mut up) = Up::start() else { return };
    let mut outage = up.start_net(&["outage", "h2", "60min"]);
    up.await_silence("h1", 2);
    up.process.signal("-KILL");
    up.process.end();
    let (_, _, said) = outage.end();
    assert!(said.starts_with("error: the lab ") && said.contains(" has ended\nfix: "), "{said}");
    let fix = up.refusal(&["heal"], "no lab is running");
    assert_eq!(fix, "start one in another terminal: `carom-lab net up`");
}

#[test]
fn nothing_is_left_of_a_killed_lab_after_clean() {
    let Some(mut up) = Up::start() else { return };
    up.process.signal("-KILL");
    up.process.end();
    let give_up = Instant::now() + Duration::from_secs(10);
    while up.folders() > 0 && Instant::now() < give_up {
        assert!(up.run(&["net", "clean"]).status.success());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(up.folders(), 0);
    assert_eq!(text(&up.run(&["net", "list"]).stdout), "no lab is running\n");
}

#[test]
fn exec_without_a_lab_is_refused_with_the_command_for_one() {
    let temporary = TempDir::new().expect("a folder");
    let output = lab(temporary.path()).args(["net", "exec", "h1", "--", "true"]).output();
    let output = output.expect("the binary was built");
    let fix = "fix: start one in another terminal: `carom-lab net up`";
    assert_eq!(text(&output.stderr), format!("error: no lab is running\n{fix}\n"));
    assert_eq!(output.status.code(), Some(2));
}

const PATIENCE: Duration = Duration::from_secs(20);
/// Longer than a datagram takes, also on a busy machine.
const SILENCE: Duration = Duration::from_millis(300);

//! Tests of ordered groups from the user's view: real processes on loopback. Each test has a
//! multicast port of its own, so that all of them can run at once.

mod calls;
mod locks;
#[path = "../lab/process.rs"]
#[allow(dead_code, reason = "the namespace tests share it, and each uses a part")]
mod process;
mod streams;
mod usage;

use std::process::{Command, Stdio};
use std::time::Duration;

use process::Running;
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);

/// Nodes of one test, isolated by their multicast port.
struct Lan {
    port: &'static str,
}

impl Lan {
    const fn new(port: &'static str) -> Self {
        Self { port }
    }

    /// Returns a command with these arguments, of which the first is the subcommand, and without
    /// standard input.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_carom"));
        // The port of a killed node must not belong to a node of another test soon after, because
        // rings with the same name would merge.
        let own = ["--interface", "127.0.0.1", "--port", "0", "--multicast-port", self.port];
        command.arg(args[0]).args(own);
        command.args(&args[1..]).stdin(Stdio::null());
        command
    }

    fn start(&self, args: &[&str]) -> Running {
        Running::start(self.command(args))
    }

    /// Starts a process whose standard error cannot be written.
    fn start_unheard(&self, args: &[&str]) -> Running {
        let told = self.command(args);
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$0\" \"$@\" 2> /dev/full"]).arg(told.get_program());
        command.args(told.get_args()).stdin(Stdio::piped());
        Running::start(command)
    }

    /// Starts a process with a standard input that the test writes to.
    fn start_piped(&self, args: &[&str]) -> Running {
        let mut command = self.command(args);
        command.stdin(Stdio::piped());
        Running::start(command)
    }

    fn sub(&self, args: &[&str]) -> Running {
        let mut sub = self.start(&[&["sub", "accounts", "--ordered"], args].concat());
        sub.said.wait_for("joined accounts");
        sub
    }

    /// Starts `N` subscribers, and waits until they are in one ring.
    fn subs<const N: usize>(&self, args: &[&str]) -> [Running; N] {
        let subs = std::array::from_fn(|_| self.sub(args));
        self.await_ring(N);
        subs
    }

    /// Waits until a query of the ring shows `members` members.
    fn await_ring(&self, members: usize) {
        while self.ring(&[])["members"].as_array().map(Vec::len) != Some(members) {
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn ring(&self, args: &[&str]) -> Value {
        let mut look = self.start(&[&["members", "accounts", "--json"], args].concat());
        look.end_with(0);
        let mut shown = look.json();
        assert_eq!(shown["group"], "accounts", "{shown}");
        assert_eq!(shown["rings"].as_array().map(Vec::len), Some(1), "{shown}");
        shown["rings"][0].take()
    }

    /// Runs a command to its end, and asserts that it is rejected with this cause and this fix.
    fn assert_refused(&self, args: &[&str], cause: &str, fix: &str) {
        let mut refused = self.start(args);
        refused.end_with(2);
        let said = &refused.said.seen;
        let [.., first, second] = &said[..] else { panic!("no error in {said:#?}") };
        assert!(first.starts_with("error: ") && first.contains(cause), "{said:#?}");
        assert!(second.starts_with("fix: ") && second.contains(fix), "{said:#?}");
    }
}

fn output(mut ended: Running, code: i32) -> Vec<String> {
    ended.end_with(code);
    std::mem::take(&mut ended.wrote.seen)
}

//! Ordered groups as the users of the command see them: real processes on loopback. Each test has a
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

/// How long anything may take before a test fails instead of waiting for ever.
const PATIENCE: Duration = Duration::from_secs(60);

/// The nodes of one test, which are among themselves.
struct Lan {
    port: &'static str,
}

impl Lan {
    /// `port` is that of all multicast.
    const fn new(port: &'static str) -> Self {
        Self { port }
    }

    /// `args`, of which the first is the verb, with nothing on standard input.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_carom"));
        // A port that a killed node had must not be that of another test's node soon after: rings
        // of one name would meet there.
        let own = ["--interface", "127.0.0.1", "--port", "0", "--multicast-port", self.port];
        command.arg(args[0]).args(own);
        command.args(&args[1..]).stdin(Stdio::null());
        command
    }

    fn start(&self, args: &[&str]) -> Running {
        Running::start(self.command(args))
    }

    /// With a standard error that takes nothing.
    fn start_unheard(&self, args: &[&str]) -> Running {
        let told = self.command(args);
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$0\" \"$@\" 2> /dev/full"]).arg(told.get_program());
        command.args(told.get_args()).stdin(Stdio::piped());
        Running::start(command)
    }

    /// With standard input for the test to write to.
    fn start_piped(&self, args: &[&str]) -> Running {
        let mut command = self.command(args);
        command.stdin(Stdio::piped());
        Running::start(command)
    }

    /// A subscriber that is in the ring.
    fn sub(&self, args: &[&str]) -> Running {
        let mut sub = self.start(&[&["sub", "accounts", "--ordered"], args].concat());
        sub.said.wait_for("joined accounts");
        sub
    }

    /// Subscribers in one ring.
    fn subs<const N: usize>(&self, args: &[&str]) -> [Running; N] {
        let subs = std::array::from_fn(|_| self.sub(args));
        self.await_ring(N);
        subs
    }

    /// Waits until a look at the ring shows so many members.
    fn await_ring(&self, members: usize) {
        while self.ring(&[])["members"].as_array().map(Vec::len) != Some(members) {
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// The only ring, as `carom members` shows it.
    fn ring(&self, args: &[&str]) -> Value {
        let mut look = self.start(&[&["members", "accounts", "--json"], args].concat());
        look.end_with(0);
        let mut shown = look.json();
        assert_eq!(shown["group"], "accounts", "{shown}");
        assert_eq!(shown["rings"].as_array().map(Vec::len), Some(1), "{shown}");
        shown["rings"][0].take()
    }

    /// Runs it to its end; asserts that it is refused with this cause and this fix.
    fn assert_refused(&self, args: &[&str], cause: &str, fix: &str) {
        let mut refused = self.start(args);
        refused.end_with(2);
        let said = &refused.said.seen;
        let [.., first, second] = &said[..] else { panic!("no error in {said:#?}") };
        assert!(first.starts_with("error: ") && first.contains(cause), "{said:#?}");
        assert!(second.starts_with("fix: ") && second.contains(fix), "{said:#?}");
    }
}

/// What it wrote on standard output, once it has ended with this code.
fn output(mut ended: Running, code: i32) -> Vec<String> {
    ended.end_with(code);
    std::mem::take(&mut ended.wrote.seen)
}

//! Tests ordered groups from the user's view: real processes, each test with its own multicast
//! port.

mod calls;
#[path = "../lab/lan.rs"]
mod lan;
mod locks;
#[path = "../lab/process.rs"]
mod process;
mod streams;
mod usage;

use std::time::Duration;

use lan::Lan;
use process::{Running, unheard};
use serde_json::Value;

impl Lan {
    fn start_unheard(&self, args: &[&str]) -> Running {
        Running::start_piped(unheard(&self.command(args)))
    }

    fn sub(&self, args: &[&str]) -> Running {
        let mut sub = self.start(&[&["sub", "accounts", "--ordered"], args].concat());
        sub.said.wait_for("joined accounts");
        sub
    }

    fn subs<const N: usize>(&self, args: &[&str]) -> [Running; N] {
        let subs = std::array::from_fn(|_| self.sub(args));
        self.await_ring(N);
        subs
    }

    fn await_ring(&self, members: usize) {
        while self.ring(&[])["members"].as_array().map(Vec::len) != Some(members) {
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn ring(&self, args: &[&str]) -> Value {
        let look = self.start(&[&["members", "accounts", "--json"], args].concat()).ended_with(0);
        let mut shown = look.json();
        assert_eq!(shown["group"], "accounts", "{shown}");
        assert_eq!(shown["rings"].as_array().map(Vec::len), Some(1), "{shown}");
        shown["rings"][0].take()
    }

    fn assert_refused(&self, args: &[&str], cause: &str, fix: &str) {
        self.start(args).assert_refused(cause, fix);
    }
}

fn output(mut ended: Running, code: i32) -> Vec<String> {
    ended.end_with(code);
    std::mem::take(&mut ended.wrote.seen)
}

//! Tests `carom send` and `carom recv` as real processes on loopback, each test in its own network.

mod delivery;
mod failures;
mod interrupted;
#[path = "../lab/process.rs"]
mod process;
mod telling;
mod usage;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{fs, thread};

use serde_json::Value;
use tempfile::TempDir;

use crate::process::{PATIENCE, Running, carom, parsed};

struct Net {
    port: u16,
    dir: TempDir,
}

impl Net {
    fn new(port: u16) -> Self {
        Self { port, dir: TempDir::new().expect("a directory") }
    }

    fn with_data(port: u16, data: &[u8]) -> Self {
        let net = Self::new(port);
        net.write("data", data);
        net
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = carom(args);
        let port = self.port.to_string();
        command.args(["--interface", "127.0.0.1", "--multicast-port", &port, "--json"]);
        command.current_dir(self.dir.path());
        command
    }

    fn start(&self, args: &[&str]) -> Running {
        Running::start(self.command(args))
    }

    fn recv(&self, name: &str, more: &[&str]) -> Running {
        let args = [&["recv", "--from", "g", name, "--name", name, "--timeout", "50s"], more];
        self.start(&args.concat())
    }

    fn send(&self, more: &[&str]) -> Running {
        self.start(&[&["send", "data", "--to", "g"], more].concat())
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.dir.path().join(name), bytes).expect("it can be written");
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    fn await_folder(&self, name: &str, is_so: impl Fn(&Path) -> bool) {
        let began = Instant::now();
        while !is_so(&self.path(name)) {
            assert!(began.elapsed() < PATIENCE, "{name} gets nothing");
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn await_pieces(&self, name: &str) {
        self.await_folder(name, has_journal);
    }
}

fn has_journal(dir: &Path) -> bool {
    let Ok(entries) = fs::read_dir(dir) else { return false };
    entries.flatten().any(|entry| {
        let inside = fs::read_dir(entry.path()).into_iter().flatten().flatten();
        inside
            .filter(|it| it.file_name().to_string_lossy().contains("journal"))
            .any(|it| it.metadata().is_ok_and(|data| data.len() > JOURNAL_HEADER))
    })
}

fn summary(ended: &Running) -> Value {
    let [summary] = &objects(ended, "summary")[..] else { panic!("{ended:?}") };
    summary.clone()
}

fn objects(ended: &Running, event: &str) -> Vec<Value> {
    ended.wrote.seen.iter().map(|line| parsed(line)).filter(|it| it["event"] == event).collect()
}

fn assert_says(ended: &Running, what: &str) {
    let text = ended.said.seen.join("\n");
    assert!(text.contains(what), "{what:?} is not in {text}");
}

fn noise(count: usize, seed: u64) -> Vec<u8> {
    let mut rng = carom_proto::Rng::new(seed);
    (0..count.div_ceil(8)).flat_map(|_| rng.next_u64().to_le_bytes()).take(count).collect()
}

const JOURNAL_HEADER: u64 = 56;

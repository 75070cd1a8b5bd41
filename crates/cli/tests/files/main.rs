//! Tests of `carom send` and `carom recv` from the user's view: real processes on loopback. Each
//! test has a network of its own.

mod delivery;
mod failures;
mod interrupted;
mod telling;
mod usage;

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

struct Net {
    port: u16,
    dir: TempDir,
}

struct Running(Option<Child>);

impl Net {
    fn new(port: u16) -> Self {
        Self { port, dir: TempDir::new().expect("a directory") }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_carom"));
        let port = self.port.to_string();
        command.args(args).args(["--interface", "127.0.0.1", "--multicast-port", &port, "--json"]);
        command.current_dir(self.dir.path()).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn start(&self, args: &[&str]) -> Running {
        Running(Some(self.command(args).spawn().expect("the binary was built for this test")))
    }

    fn recv(&self, name: &str, more: &[&str]) -> Running {
        let args = [&["recv", "--from", "g", name, "--name", name, "--timeout", "60s"], more];
        self.start(&args.concat())
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

    /// Waits until a receiver has begun to write into `name`.
    fn await_file(&self, name: &str) {
        let began = Instant::now();
        while fs::read_dir(self.path(name)).map_or(0, Iterator::count) == 0 {
            assert!(began.elapsed() < PATIENCE, "{name} stays empty");
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn await_pieces(&self, name: &str) {
        let began = Instant::now();
        while !has_journal(&self.path(name)) {
            assert!(began.elapsed() < PATIENCE, "{name} gets nothing");
            thread::sleep(Duration::from_millis(5));
        }
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

impl Running {
    fn end(mut self) -> Output {
        let child = self.0.take().expect("it runs");
        child.wait_with_output().expect("it ends")
    }

    fn interrupt(&self) {
        let child = self.0.as_ref().expect("it runs");
        let pid = Pid::from_raw(child.id().try_into().expect("a process id"));
        kill(pid, Signal::SIGINT).expect("it can be signalled");
    }

    fn kill(mut self) {
        let mut child = self.0.take().expect("it runs");
        child.kill().expect("it can be killed");
        child.wait().expect("it ends");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn summary(output: &Output) -> Value {
    let [summary] = &objects(output, "summary")[..] else { panic!("{output:?}") };
    summary.clone()
}

fn objects(output: &Output, event: &str) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    let objects = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    objects.filter(|it| it["event"] == event).collect()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| panic!("{output:?}"))
}

fn assert_says(output: &Output, what: &str) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains(what), "{what:?} is not in {text}");
}

fn noise(count: usize, seed: u64) -> Vec<u8> {
    let mut rng = carom_proto::Rng::new(seed);
    (0..count.div_ceil(8)).flat_map(|_| rng.next_u64().to_le_bytes()).take(count).collect()
}

const PATIENCE: Duration = Duration::from_secs(60);
const JOURNAL_HEADER: u64 = 56;

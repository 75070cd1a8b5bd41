//! A lab that other commands use while `carom-lab net up` runs.
#![cfg(target_os = "linux")]

#[path = "../../cli/tests/lab/skipping.rs"]
mod skipping;

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A running `net up`, killed when it is dropped.
struct Up {
    child: Child,
    /// The directory in which commands find the lab.
    temporary: TempDir,
}

impl Drop for Up {
    fn drop(&mut self) {
        // Both calls fail if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Up {
    /// Starts a lab of two hosts. Returns `None` where that is not possible.
    fn start() -> Option<Self> {
        let temporary = TempDir::new().expect("a folder");
        let mut command = lab(temporary.path());
        command.args(["net", "up", "--json"]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary was built for this test");
        let mut line = String::new();
        let stdout = child.stdout.as_mut().expect("it is piped");
        BufReader::new(stdout).read_line(&mut line).expect("it is text");
        let mut up = Self { child, temporary };
        if line.is_empty() {
            let mut text = String::new();
            let stderr = up.child.stderr.as_mut().expect("it is piped");
            stderr.read_to_string(&mut text).expect("it is text");
            assert!(text.contains("user namespaces") || text.contains("not installed"), "{text}");
            skipping::lacking(&text.replace('\n', "; "));
            return None;
        }
        Some(up)
    }

    fn run(&self, args: &[&str]) -> Output {
        lab(self.temporary.path()).args(args).output().expect("the binary was built")
    }

    fn folders(&self) -> usize {
        std::fs::read_dir(self.temporary.path()).expect("it exists").count()
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

    let id = up.child.id().to_string();
    let sent = Command::new("kill").args(["-INT", &id]).status().expect("it is installed");
    assert!(sent.success());
    assert_eq!(up.child.wait().expect("it is our child").code(), Some(0));
    assert_eq!(up.folders(), 0);
}

#[test]
fn nothing_is_left_of_a_killed_lab_after_clean() {
    let Some(mut up) = Up::start() else { return };
    up.child.kill().expect("it runs");
    up.child.wait().expect("it is our child");
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

//! Tests that nothing remains of a program that isolates itself, as root and as another user.
//!
//! The program is this test, which runs itself with the argument `inside`. Where the kernel permits
//! no namespaces, a test reports that it did not run.
#![cfg_attr(not(target_os = "linux"), no_main)]
#![cfg(target_os = "linux")]
#![expect(clippy::print_stdout, reason = "the test reports like the harness of others")]

#[path = "../../../cli/tests/lab/skipping.rs"]
mod skipping;

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use carom_netns::{Isolation, Lab, Layout, Loss, isolate};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("inside") {
        return inside();
    }
    let tests = [
        ("hosts_lose_and_record_datagrams_in_isolation", loses_and_records as fn(&Program)),
        ("exit_code_of_an_isolated_program_is_its_own", ends_with_its_code),
        ("nothing_is_left_of_a_killed_program", leaves_nothing_after_sigkill),
        ("an_isolated_program_is_ended_by_sigterm", ends_by_sigterm),
    ];
    for program in [Program::of_this_user(), Program::of_nobody()] {
        for (name, test) in tests {
            let run = || match program.refusal() {
                Some(why) => skipping::lacking(&why),
                None => test(&program),
            };
            // The report of a test that cannot run has the name of its thread.
            let name = format!("{name}, {}", program.user);
            let thread = std::thread::scope(|scope| {
                let thread = std::thread::Builder::new().name(name.clone());
                thread.spawn_scoped(scope, run).expect("a thread starts").join()
            });
            if thread.is_err() {
                println!("test {name} ... FAILED");
                return ExitCode::FAILURE;
            }
            println!("test {name} ... ok");
        }
    }
    ExitCode::SUCCESS
}

/// The isolated program: builds a lab, reports that it is ready, and does what its argument says.
fn inside() -> ExitCode {
    let refused = |why: &dyn std::fmt::Display| {
        println!("refused: {why}");
        ExitCode::from(2)
    };
    match isolate() {
        Ok(Isolation::Ended(code)) => return ExitCode::from(code),
        Ok(Isolation::Inside(_)) => {}
        Err(error) => return refused(&error),
    }
    let lab = match Lab::build(&Layout::default()) {
        Ok(lab) => lab,
        Err(error) => return refused(&error),
    };
    match std::env::args().nth(2).as_deref() {
        Some("lose") => println!("lost {}", lose(&lab)),
        Some("wait") => {
            // A process of the lab that would survive in any other process namespace.
            let sleep = lab.host(1).command("sleep", &["1000"]).spawn();
            println!("ready {}", sleep.is_ok());
            std::thread::sleep(Duration::from_secs(1000));
        }
        _ => return ExitCode::from(7),
    }
    ExitCode::SUCCESS
}

/// Sends 100 datagrams to a host that loses all of them. Returns the number in the record.
fn lose(lab: &Lab) -> usize {
    let (sender, receiver) = (lab.host(1), lab.host(2));
    receiver.set_loss(&Loss::Independent { probability: 1.0 }).expect("nft is installed");
    let folder = tempfile::TempDir::new().expect("a folder");
    let log = receiver.log_drops(&folder.path().join("drops")).expect("the host exists");
    let socket = sender.enter(|| std::net::UdpSocket::bind("0.0.0.0:0"));
    let socket = socket.expect("the lab exists").expect("a port is free");
    for _ in 0..100 {
        socket.send_to(b"lost", (receiver.address(), 9000)).expect("the network is reachable");
    }
    log.finish().expect("the record is complete").len()
}

/// This program, for one user.
struct Program {
    user: &'static str,
    prefix: &'static [&'static str],
    path: PathBuf,
    _folder: Option<tempfile::TempDir>,
}

impl Program {
    fn of_this_user() -> Self {
        let path = std::env::current_exe().expect("it is a file");
        Self { user: "this user", prefix: &[], path, _folder: None }
    }

    /// The user cannot read the folders of the build, so that the program is copied.
    fn of_nobody() -> Self {
        let folder = tempfile::TempDir::new().expect("a folder");
        let path = folder.path().join("isolation");
        std::fs::copy(Self::of_this_user().path, &path).expect("the disk has room");
        let readable = Command::new("chmod").args(["755"]).arg(folder.path()).status();
        assert!(readable.expect("chmod is installed").success());
        let prefix = &["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
        Self { user: "nobody", prefix, path, _folder: Some(folder) }
    }

    fn start(&self, task: &str) -> Child {
        let mut words = self.prefix.iter().map(Path::new).chain([self.path.as_path()]);
        let mut command = Command::new(words.next().expect("there is a program"));
        command.args(words).args(["inside", task]).env_remove("TMPDIR").current_dir("/tmp");
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command.spawn().expect("it is installed")
    }

    fn run(&self, task: &str) -> (Option<i32>, String) {
        let output = self.start(task).wait_with_output().expect("it ends");
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn refusal(&self) -> Option<String> {
        let (_, said) = self.run("nothing");
        said.strip_prefix("refused: ").map(|why| why.replace('\n', "; "))
    }
}

fn loses_and_records(program: &Program) {
    assert_eq!(program.run("lose"), (Some(0), "lost 100\n".to_owned()));
}

fn ends_with_its_code(program: &Program) {
    assert_eq!(program.run("nothing"), (Some(7), String::new()));
}

fn leaves_nothing_after_sigkill(program: &Program) {
    let mut outer = program.start("wait");
    let mut stdout = BufReader::new(outer.stdout.take().expect("it is piped"));
    let mut line = String::new();
    stdout.read_line(&mut line).expect("it is text");
    assert_eq!(line, "ready true\n");
    let inside = isolated_processes(outer.id());
    assert!(inside.len() >= 2, "the program and `sleep`: {inside:?}");
    outer.kill().expect("it is our child");
    outer.wait().expect("it is our child");
    // The pipe closes when the last process that holds it has ended.
    stdout.read_to_string(&mut line).expect("it is text");
    let give_up = Instant::now() + PATIENCE;
    while inside.iter().any(|pid| Path::new("/proc").join(pid).exists()) {
        assert!(Instant::now() < give_up, "{inside:?} survived");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn ends_by_sigterm(program: &Program) {
    let mut outer = program.start("wait");
    let mut stdout = BufReader::new(outer.stdout.take().expect("it is piped"));
    stdout.read_line(&mut String::new()).expect("it is text");
    let id = i32::try_from(outer.id()).expect("it is small");
    kill(Pid::from_raw(id), Signal::SIGTERM).expect("it is our child");
    let status = outer.wait().expect("it is our child");
    assert_eq!((status.code(), status.signal()), (Some(143), None));
}

/// Returns the ids of the processes below `outer`.
fn isolated_processes(outer: u32) -> Vec<String> {
    let children = |pid: &str| {
        let output = Command::new("ps").args(["-o", "pid=", "--ppid", pid]).output();
        let text = output.expect("ps is installed").stdout;
        let text = String::from_utf8_lossy(&text).into_owned();
        text.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let mut found = children(&outer.to_string());
    let mut next = 0;
    while next < found.len() {
        let more = children(&found[next]);
        found.extend(more);
        next += 1;
    }
    found
}

const PATIENCE: Duration = Duration::from_secs(30);

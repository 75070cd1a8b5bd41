//! Nodes as processes on loopback, run by the protocol of the harness. The test starts itself as a
//! node, and accounts for the files that the nodes leave.
#![allow(clippy::print_stdout, reason = "a test without a harness reports its progress itself")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use carom_bench::account::{Account, Node, Workload};
use carom_bench::node::{self, Assignment, System};
use carom_bench::record::{BACKGROUND_BYTES, NodeFiles};
use clap::Parser;

#[derive(Parser)]
struct Cli {
    #[arg(long)]
    system: System,
    #[command(flatten)]
    work: Assignment,
}

struct Process {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

struct Case {
    system: &'static str,
    settings: &'static str,
    roles: [&'static str; 3],
    groups: u32,
}

fn main() {
    let is_node = std::env::args().any(|arg| arg == "--system");
    if is_node {
        let cli = Cli::parse();
        let is_done = node::run(cli.system, &cli.work).is_ok();
        std::process::exit(i32::from(!is_done));
    }
    let fan_out = ["sender", "receiver", "receiver"];
    let cases = [
        ("raw", Case { system: "raw", settings: "", roles: fan_out, groups: 2 }),
        (
            "raw-stamped",
            Case { system: "raw", settings: "kernel_times = true\n", roles: fan_out, groups: 1 },
        ),
        ("time-critical", Case { system: "carom", settings: "", roles: fan_out, groups: 2 }),
        (
            "bulk",
            Case { system: "carom", settings: "profile = \"bulk\"\n", roles: fan_out, groups: 1 },
        ),
        (
            "ordered",
            Case {
                system: "carom",
                settings: "profile = \"ordered\"\n",
                roles: ["member"; 3],
                groups: 1,
            },
        ),
    ];
    for (number, (name, case)) in cases.iter().enumerate() {
        let account = case.run(17_430 + number);
        check(name, case, &account);
        println!("test nodes_of_{name} ... ok");
    }
    node_without_a_harness_ends();
    println!("test node_without_a_harness_ends ... ok");
}

fn check(name: &str, case: &Case, account: &Account) {
    let is_ordered = name == "ordered";
    let senders = case.roles.iter().filter(|role| **role != "receiver").count() as u64;
    let receivers = if is_ordered { 3 } else { 2 };
    assert_eq!(account.expected, u64::from(MESSAGES) * senders * receivers, "{name}: {account:?}");
    assert_eq!((account.unknown, account.duplicates), (0, 0), "{name}: {account:?}");
    // Plain sockets promise nothing, but loopback loses little at this rate.
    let most_missing = if case.system == "raw" { account.expected / 2 } else { 0 };
    assert!(account.missing <= most_missing, "{name}: {account:?}");
    assert!(account.latency.p50 > 0 && account.spread.count > 0, "{name}: {account:?}");
    let stamped = if name == "raw-stamped" { account.delivered } else { 0 };
    assert_eq!(account.latency_from_kernel.count, stamped, "{name}: {account:?}");
    assert!(account.orders_agree || !is_ordered, "{name}: {account:?}");
    let is_in_order = account.out_of_order == 0;
    assert!(is_in_order || !["ordered", "bulk"].contains(&name), "{name}: {account:?}");
    assert_eq!(account.send_delay.count, account.sent, "{name}: {account:?}");
}

impl Case {
    fn run(&self, port: usize) -> Account {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let settings = folder.path().join("settings.toml");
        let text = format!("{}multicast_port = {port}\n", self.settings);
        std::fs::write(&settings, text).expect("the folder is writable");
        let magic = format!("{:016x}", 0xC0FF_EE00 + port);
        let start = |index: usize| {
            let dir = folder.path().join(index.to_string());
            std::fs::create_dir(&dir).expect("the folder is writable");
            self.start(index, &magic, &dir, &settings)
        };
        let mut nodes: Vec<Process> = (0..3).map(start).collect();
        // A harness does not wait in order, because a sender is ready only after its receivers.
        nodes.iter_mut().rev().for_each(|node| node.wait_for("ready"));
        nodes.iter_mut().rev().for_each(|node| node.write("go"));
        let sends = |role: &str| role != "receiver";
        for (node, role) in nodes.iter_mut().zip(self.roles) {
            if sends(role) {
                node.wait_for("sent");
            }
        }
        for (node, role) in nodes.iter_mut().zip(self.roles) {
            if role != "sender" && self.system != "raw" {
                node.wait_for("complete");
            }
        }
        if self.system == "raw" {
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
        nodes.iter_mut().for_each(|node| node.write("stop"));
        nodes.into_iter().for_each(Process::end);
        let evidence = self.roles.iter().enumerate().map(|(index, role)| {
            let files = NodeFiles::read(&folder.path().join(index.to_string()));
            let files = files.expect("the node has written its files");
            assert!(files.report.system.starts_with(self.system), "{:?}", files.report);
            assert_eq!(files.report.counters["messages_corrupted"], 0, "{:?}", files.report);
            let has_background = files.report.counters.contains_key(BACKGROUND_BYTES);
            assert_eq!(has_background, *role == "receiver", "{:?}", files.report);
            Node { files, receives: *role != "sender", ..Node::default() }
        });
        let work = Workload { groups: self.groups, size: SIZE, rate: 1000.0 };
        Account::of(&evidence.collect::<Vec<_>>(), &work)
    }

    fn start(&self, index: usize, magic: &str, dir: &Path, settings: &Path) -> Process {
        let mut command = itself();
        command.args(["--system", self.system, "--role", self.roles[index], "--nodes", "3"]);
        command.args(["--index", &index.to_string(), "--groups", &self.groups.to_string()]);
        command.args(["--address", "127.0.0.1", "--magic", magic, "--rate", "1000"]);
        command.args(["--messages", &MESSAGES.to_string(), "--size", &SIZE.to_string()]);
        command.args(["--peers", "127.0.0.1,127.0.0.1,127.0.0.1"]);
        if self.roles[0] == "sender" {
            command.args(["--background-mib", "1"]);
        }
        command.arg("--dir").arg(dir).arg("--settings").arg(settings);
        Process::start(command)
    }
}

fn node_without_a_harness_ends() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let settings = folder.path().join("settings.toml");
    std::fs::write(&settings, "").expect("the folder is writable");
    let roles = ["receiver"; 3];
    let case = Case { system: "raw", settings: "", roles, groups: 1 };
    let Process { mut child, to, .. } = case.start(1, "0000000000000001", folder.path(), &settings);
    drop(to);
    assert!(!child.wait().expect("it is our child").success());
    assert!(!folder.path().join("report.json").exists());
}

fn itself() -> Command {
    Command::new(std::env::current_exe().expect("this program has a path"))
}

impl Process {
    fn start(mut command: Command) -> Self {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.expect("this program can be started");
        let to = child.stdin.take().expect("it is piped");
        let from = BufReader::new(child.stdout.take().expect("it is piped"));
        Self { child, to, from }
    }

    fn write(&mut self, line: &str) {
        writeln!(self.to, "{line}").expect("the node reads its input");
    }

    fn wait_for(&mut self, line: &str) {
        let mut lines = self.from.by_ref().lines().map_while(Result::ok);
        assert!(lines.any(|read| read == line), "the node ended without {line}");
    }

    fn end(mut self) {
        drop(self.to);
        assert!(self.child.wait().expect("it is our child").success());
    }
}

const MESSAGES: u32 = 300;
const SIZE: usize = 200;

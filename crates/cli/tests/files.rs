//! `carom send` and `carom recv` as their users see them: real processes on loopback. Each test
//! has a network of its own.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

/// One network of processes, and a directory for what they send and receive.
struct Net {
    port: u16,
    dir: TempDir,
}

/// A process that is killed if a test ends early.
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

    /// How far a receiver has come that writes into `name`: bytes on disk of what is not whole.
    fn await_pieces(&self, name: &str) {
        let began = Instant::now();
        while !has_journal(&self.path(name)) {
            assert!(began.elapsed() < PATIENCE, "{name} gets nothing");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Whether pieces were journalled there.
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

/// The summary among the objects on standard output.
fn summary(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let mut objects = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    objects.find(|it| it["event"] == "summary").unwrap_or_else(|| panic!("{output:?}"))
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| panic!("{output:?}"))
}

fn assert_says(output: &Output, what: &str) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains(what), "{what:?} is not in {text}");
}

/// Bytes that do not repeat.
fn noise(count: usize, seed: u64) -> Vec<u8> {
    let mut rng = carom_proto::Rng::new(seed);
    (0..count.div_ceil(8)).flat_map(|_| rng.next_u64().to_le_bytes()).take(count).collect()
}

#[test]
fn a_file_and_a_directory_reach_all_receivers_though_datagrams_are_lost() {
    let net = Net::new(23_101);
    let big = noise(9_000_000, 1);
    net.write("big.bin", &big);
    fs::create_dir_all(net.path("tree/empty")).expect("a directory");
    net.write("tree/one", b"1");
    std::os::unix::fs::symlink("one", net.path("tree/link")).expect("a link");
    let receivers = ["a", "b", "c"].map(|name| net.recv(name, &["--loss", "2%"]));
    let sent = net.start(&["send", "big.bin", "tree", "--to", "g", "--receivers", "3"]).end();
    assert_eq!(code(&sent), 0, "{sent:?}");
    for (name, receiver) in ["a", "b", "c"].iter().zip(receivers) {
        let received = receiver.end();
        assert_eq!(code(&received), 0, "{received:?}");
        assert_eq!(summary(&received)["wrong_pieces"], 0);
        assert!(net.read(&format!("{name}/big.bin")) == big, "{name} has other bytes");
        assert_eq!(net.read(&format!("{name}/tree/link")), b"1");
        assert!(net.path(&format!("{name}/tree/empty")).is_dir());
        assert_eq!(fs::read_dir(net.path(name)).expect("it is there").count(), 2, "no leftovers");
    }
    let rows = summary(&sent)["receivers"].as_array().expect("rows").len();
    assert_eq!(rows, 3);
}

#[test]
fn standard_input_is_sent_as_a_file() {
    let net = Net::new(23_102);
    let receiver = net.recv("a", &[]);
    let mut sender =
        net.command(&["send", "-", "--name", "words", "--to", "g", "--receivers", "1"]);
    let mut sender = sender.stdin(Stdio::piped()).spawn().expect("it starts");
    let mut input = sender.stdin.take().expect("it is piped");
    input.write_all(b"some words").expect("it reads");
    drop(input);
    assert_eq!(code(&Running(Some(sender)).end()), 0);
    assert_eq!(code(&receiver.end()), 0);
    assert_eq!(net.read("a/words"), b"some words");
}

#[test]
fn a_receiver_that_has_such_a_file_already_fails_and_is_named_and_the_others_finish() {
    let net = Net::new(23_103);
    net.write("data", &noise(300_000, 2));
    fs::create_dir(net.path("a")).expect("a directory");
    net.write("a/data", b"precious");
    let (refusing, other) = (net.recv("a", &[]), net.recv("b", &[]));
    let sent = net.start(&["send", "data", "--to", "g", "--start-after", "3s"]).end();
    assert_eq!(code(&sent), 1, "{sent:?}");
    let refused = refusing.end();
    assert_eq!(code(&refused), 2);
    assert_says(&refused, "data exists already");
    assert_says(&refused, "--overwrite");
    assert_eq!(net.read("a/data"), b"precious");
    assert_eq!(code(&other.end()), 0);
    let summary = summary(&sent);
    let rows = summary["receivers"].as_array().expect("rows");
    let failed: Vec<&Value> = rows.iter().filter(|row| row["state"] == "failed").collect();
    assert_eq!(failed.len(), 1, "{rows:?}");
    assert!(failed[0]["name"].as_str().expect("a name").starts_with('a'), "{failed:?}");
}

#[test]
fn a_sender_and_a_receiver_that_were_killed_go_on_from_where_they_were() {
    let net = Net::new(23_104);
    let big = noise(24_000_000, 3);
    net.write("big.bin", &big);
    let receivers = ["a", "b"].map(|name| net.recv(name, &[]));
    let args = ["send", "big.bin", "--to", "g", "--receivers", "2", "--rate", "60Mbit"];
    let sender = net.start(&args);
    net.await_pieces("a");
    net.await_pieces("b");
    sender.kill();
    let [first, second] = receivers;
    first.kill();
    let first = net.recv("a", &[]);
    let sent = net.start(&["send", "big.bin", "--to", "g", "--receivers", "2"]).end();
    assert_eq!(code(&sent), 0, "{sent:?}");
    for (name, receiver) in [("a", first), ("b", second)] {
        let received = receiver.end();
        assert_eq!(code(&received), 0, "{received:?}");
        assert!(net.read(&format!("{name}/big.bin")) == big, "{name} has other bytes");
    }
    let summary = summary(&sent);
    for row in summary["receivers"].as_array().expect("rows") {
        assert!(row["resumed_bytes"].as_u64().expect("a number") > 0, "{row}");
    }
}

#[test]
fn a_second_sender_in_a_group_is_told_so() {
    let net = Net::new(23_105);
    net.write("data", &noise(4_000_000, 4));
    let receiver = net.recv("a", &[]);
    let first = net.start(&["send", "data", "--to", "g", "--receivers", "1", "--rate", "8Mbit"]);
    net.await_pieces("a");
    let second = net.start(&["send", "data", "--to", "g", "--receivers", "1"]).end();
    assert_eq!(code(&second), 2, "{second:?}");
    assert_says(&second, "another member sends in this group");
    assert_eq!(code(&first.end()), 0);
    assert_eq!(code(&receiver.end()), 0);
}

#[test]
fn without_receivers_and_without_anything_to_send_it_says_so() {
    let net = Net::new(23_106);
    net.write("data", b"1");
    let alone = net.start(&["send", "data", "--to", "g", "--start-after", "300ms"]).end();
    assert_eq!(code(&alone), 2);
    assert_says(&alone, "no receiver has connected");
    let nothing = net.start(&["send", "absent", "--to", "g"]).end();
    assert_eq!(code(&nothing), 2);
    assert_says(&nothing, "absent");
    let waited = net.start(&["recv", "--from", "g", "x", "--timeout", "300ms"]).end();
    assert_eq!(code(&waited), 2);
    assert_says(&waited, "nothing was sent to group g");
    let wrong = net.start(&["send", "data", "--to", "g", "--rate", "fast"]).end();
    assert_eq!(code(&wrong), 2);
    assert_says(&wrong, "write a bandwidth");
}

#[test]
fn ctrl_c_ends_a_receiver_that_waits_and_a_sender_that_nobody_hears() {
    let net = Net::new(23_107);
    net.write("data", b"1");
    for args in
        [&["recv", "--from", "g", "a"][..], &["send", "data", "--to", "g", "--receivers", "2"]]
    {
        let running = net.start(args);
        thread::sleep(Duration::from_secs(1));
        let child = running.0.as_ref().expect("it runs");
        let pid = Pid::from_raw(child.id().try_into().expect("a process id"));
        kill(pid, Signal::SIGINT).expect("it can be signalled");
        let ended = running.end();
        assert_eq!(code(&ended), 130, "{ended:?}");
    }
}

#[test]
fn a_transfer_goes_on_though_nobody_takes_what_is_said_of_it() {
    let net = Net::new(23_141);
    net.write("data", &noise(300_000, 8));
    let unheard = |args: &[&str]| {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("it is there");
        let child = net.command(args).stderr(full).spawn();
        Running(Some(child.expect("the binary was built for this test")))
    };
    let receiver = unheard(&["recv", "--from", "g", "a", "--timeout", "60s"]);
    let sent = unheard(&["send", "data", "--to", "g", "--receivers", "1"]).end();
    assert_eq!(code(&sent), 0, "{sent:?}");
    assert_eq!(code(&receiver.end()), 0);
    assert_eq!(net.read("a/data"), net.read("data"));
}

/// The objects of an event on standard output.
fn objects(output: &Output, event: &str) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    let objects = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    objects.filter(|it| it["event"] == event).collect()
}

#[test]
fn one_that_failed_is_told_though_another_of_its_name_and_host_finishes() {
    let net = Net::new(23_142);
    net.write("data", &noise(300_000, 9));
    fs::create_dir(net.path("a")).expect("a directory");
    net.write("a/data", b"precious");
    let recv =
        |dir: &str| net.start(&["recv", "--from", "g", dir, "--name", "same", "--timeout", "60s"]);
    let (refusing, other) = (recv("a"), recv("b"));
    let sent = net.start(&["send", "data", "--to", "g", "--receivers", "2"]).end();
    assert_eq!(code(&sent), 1, "{sent:?}");
    assert_eq!((code(&refusing.end()), code(&other.end())), (2, 0));
    let summary = summary(&sent);
    let rows = summary["receivers"].as_array().expect("rows");
    let mut states: Vec<_> = rows.iter().filter_map(|row| row["state"].as_str()).collect();
    states.sort_unstable();
    assert_eq!(states, ["failed", "finished"]);
}

#[test]
fn a_sender_whose_receivers_all_fail_before_it_begins_ends_and_names_them() {
    let net = Net::new(23_143);
    net.write("data", &noise(300_000, 10));
    fs::create_dir(net.path("a")).expect("a directory");
    net.write("a/data", b"precious");
    for when in [["--receivers", "1"], ["--start-after", "3s"]] {
        let refusing = net.recv("a", &[]);
        let args = [&["send", "data", "--to", "g"][..], &when].concat();
        let sent = net.start(&args).end();
        assert_eq!(code(&sent), 1, "{sent:?}");
        let summary = summary(&sent);
        assert_eq!(summary["receivers"][0]["name"], "a");
        assert_eq!(summary["receivers"][0]["state"], "failed");
        let refused = refusing.end();
        assert_eq!(code(&refused), 2);
        let errors = objects(&refused, "error");
        assert!(errors.len() == 1, "{refused:?}");
        assert_eq!(errors[0]["cause"], "group g: data exists already");
    }
}

#[test]
fn a_sender_that_waits_says_for_how_many() {
    let net = Net::new(23_144);
    net.write("data", &noise(300_000, 11));
    let first = net.recv("a", &[]);
    let mut sender = net.start(&["send", "data", "--to", "g", "--receivers", "2"]);
    let child = sender.0.as_mut().expect("it runs");
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let waiting = lines
        .by_ref()
        .map(|line| serde_json::from_str::<Value>(&line.expect("text")).expect("JSON"))
        .find(|it| it["event"] == "waiting" && it["ready"] == 1);
    let waiting = waiting.expect("it says so");
    assert_eq!((&waiting["of"], &waiting["failed"]), (&2.into(), &0.into()));
    let second = net.recv("b", &[]);
    let summary = lines.map_while(Result::ok).last();
    assert!(summary.expect("a line").contains("summary"));
    let sent = sender.end();
    assert_eq!(code(&sent), 0, "{sent:?}");
    assert_says(&sent, "waiting: 1 of 2 ready, 0 failed");
    assert_eq!((code(&first.end()), code(&second.end())), (0, 0));
}

#[test]
fn the_same_again_is_had_by_those_who_have_it() {
    let net = Net::new(23_145);
    let data = noise(3_000_000, 12);
    fs::create_dir_all(net.path("d/empty")).expect("a directory");
    net.write("d/data", &data);
    let first = net.recv("a", &[]);
    let args = ["send", "d", "--to", "g", "--receivers"];
    assert_eq!(code(&net.start(&[&args[..], &["1"]].concat()).end()), 0);
    assert_eq!(code(&first.end()), 0);
    let receivers = ["a", "b"].map(|name| net.recv(name, &[]));
    let sent = net.start(&[&args[..], &["2"]].concat()).end();
    assert_eq!(code(&sent), 0, "{sent:?}");
    for (name, receiver) in ["a", "b"].iter().zip(receivers) {
        let received = receiver.end();
        assert_eq!(code(&received), 0, "{received:?}");
        assert!(net.read(&format!("{name}/d/data")) == data, "{name} has other bytes");
        assert_eq!(fs::read_dir(net.path(name)).expect("it is there").count(), 1, "no leftovers");
    }
}

#[test]
fn progress_is_what_was_multicast_and_an_end_in_between_says_what_is_kept() {
    let net = Net::new(23_146);
    net.write("data", &noise(24_000_000, 13));
    let receiver = net.recv("a", &[]);
    let began = Instant::now();
    let args = ["send", "data", "--to", "g", "--receivers", "1", "--rate", "8Mbit"];
    let mut sender = net.start(&args);
    let child = sender.0.as_mut().expect("it runs");
    let pid = Pid::from_raw(child.id().try_into().expect("a process id"));
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let progress = lines
        .by_ref()
        .map(|line| serde_json::from_str::<Value>(&line.expect("text")).expect("JSON"))
        .find(|it| it["event"] == "progress" && it["bytes"].as_u64() > Some(0));
    let bytes = progress.expect("it goes on")["bytes"].as_u64().expect("a number");
    // A megabyte each second, and what may leave at once. A slow machine takes longer for it.
    let most = began.elapsed().as_secs() * 1_000_000 + 2_000_000;
    assert!(bytes <= most, "{bytes} bytes cannot have left, but {most}");
    kill(pid, Signal::SIGINT).expect("it can be signalled");
    let ended = lines.map_while(Result::ok).last().expect("a line");
    assert!(ended.contains("interrupted"), "{ended}");
    let sent = sender.end();
    assert_eq!(code(&sent), 130, "{sent:?}");
    assert_says(&sent, "receivers keep what they have verified");
    let received = receiver.end();
    assert_eq!(code(&received), 2);
    assert_says(&received, "the sender ended the transfer: it was cancelled");
    assert_says(&received, "it goes on from what is kept");
}

#[test]
fn a_receiver_that_is_ended_in_between_says_what_it_keeps_and_how_to_go_on() {
    let net = Net::new(23_149);
    net.write("data", &noise(24_000_000, 15));
    let receiver = net.recv("a", &[]);
    let args = ["send", "data", "--to", "g", "--receivers", "1", "--rate", "8Mbit"];
    let _sender = net.start(&[&args[..], &["--patience", "1s"]].concat());
    net.await_pieces("a");
    let child = receiver.0.as_ref().expect("it runs");
    let pid = Pid::from_raw(child.id().try_into().expect("a process id"));
    kill(pid, Signal::SIGINT).expect("it can be signalled");
    let ended = receiver.end();
    assert_eq!(code(&ended), 130, "{ended:?}");
    assert_says(&ended, "what was verified is kept in a, and the same command goes on from there");
    assert_eq!(objects(&ended, "interrupted").len(), 1);
    assert!(has_journal(&net.path("a")), "it is kept");
}

#[test]
fn wrong_use_is_told_at_once_with_what_helps() {
    let net = Net::new(23_147);
    net.write("data", b"1");
    let says = |args: &[&str], cause: &str, fix: &str| {
        let told = net.start(args).end();
        assert_eq!(code(&told), 2, "{told:?}");
        assert_says(&told, cause);
        assert_says(&told, fix);
    };
    says(
        &["recv", "--from", "g", "data/sub"],
        "data is a file, not a directory",
        "give a directory",
    );
    says(&["recv", "--from", "g", "data"], "data is a file, not a directory", "give a directory");
    // Where even a superuser can write nothing.
    let nowhere = ["recv", "--from", "g", "/proc/carom/a"];
    says(
        &nowhere,
        "nothing can be written in /proc: No such file or directory (os error 2)",
        "give a directory in which you may write",
    );
    std::os::unix::fs::symlink("none", net.path("link")).expect("a symlink");
    says(&["recv", "--from", "g", "link"], "link leads to nothing", "give a directory");
    let send = |more: &[&'static str]| [&["send", "data", "--to", "g"], more].concat();
    says(&send(&["--rate", "-5Mbit"]), "--rate <RATE>: ", "write a bandwidth");
    says(&send(&["--copies", "0"]), "is not in 1..=16", "give a value that is possible");
    says(&send(&["--copies", "17"]), "is not in 1..=16", "give a value that is possible");
    says(&send(&["--rate", "0"]), "is not between 80kbit and 8000Gbit", "write a bandwidth");
    says(&send(&["--name", "a/b"]), "--name is what standard input is called", "give `-` as PATH");
    let mut sender = net.command(&["send", "-", "--to", "g"]);
    let nowhere = Running(Some(sender.env("TMPDIR", "/none").spawn().expect("it starts"))).end();
    assert_eq!(code(&nowhere), 2, "{nowhere:?}");
    assert_says(&nowhere, "temporary file in /none");
    assert_says(&nowhere, "TMPDIR");
}

#[test]
fn a_directory_in_the_way_is_not_said_to_be_replaced_by_overwrite() {
    let net = Net::new(23_148);
    net.write("data", &noise(300_000, 14));
    fs::create_dir_all(net.path("a/data")).expect("a directory");
    let receiver = net.recv("a", &["--overwrite"]);
    assert_eq!(code(&net.start(&["send", "data", "--to", "g", "--receivers", "1"]).end()), 1);
    let refused = receiver.end();
    assert_eq!(code(&refused), 2);
    assert_says(&refused, "fix: move it away, or give another directory");
}

const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of a journal without pieces.
const JOURNAL_HEADER: u64 = 56;

#[test]
fn a_transfer_goes_over_the_network_that_a_file_describes_and_tells_whom_it_does_not_name() {
    let net = Net::new(23_121);
    let data = noise(3_000_000, 7);
    net.write("data", &data);
    let file = "[racks]\nleft = ['127.0.0.1:23131', '127.0.0.1:23132']\n\
                right = ['127.0.0.1:23133']\n";
    net.write("net.toml", file.as_bytes());
    let named = ["a", "b"].into_iter().zip(["23132", "23133"]);
    let mut receivers: Vec<Running> =
        named.map(|(name, port)| net.recv(name, &["--port", port, "--loss", "1%"])).collect();
    receivers.push(net.recv("c", &["--port", "23134"]));
    let args = ["send", "data", "--to", "g", "--receivers", "3", "--port", "23131"];
    let sent = net.start(&[&args[..], &["--topology", "net.toml"]].concat()).end();
    assert_eq!(code(&sent), 0, "{sent:?}");
    for (name, receiver) in ["a", "b", "c"].iter().zip(receivers) {
        assert_eq!(code(&receiver.end()), 0);
        assert!(net.read(&format!("{name}/data")) == data, "{name} has other bytes");
    }
    let told = String::from_utf8_lossy(&sent.stderr);
    assert!(told.contains("a receiver at 127.0.0.1:23134 is not in net.toml"), "{told}");
    assert_eq!(told.matches("is not in net.toml").count(), 1, "{told}");
}

#[test]
fn a_topology_that_is_none_is_refused_with_its_line_and_what_helps() {
    let net = Net::new(23_122);
    net.write("data", b"some");
    net.write(
        "net.toml",
        b"switches = ['core']\nlinks = [['left', 'spine']]\n[racks]\n\
                           left = ['127.0.0.1:23135']\n",
    );
    let args = ["send", "data", "--to", "g", "--topology"];
    let sent = net.start(&[&args[..], &["net.toml"]].concat()).end();
    assert_eq!(code(&sent), 2, "{sent:?}");
    assert_says(&sent, "net.toml:2: there is no switch, rack or host 'spine'");
    assert_says(&sent, "name it under switches, [racks] or [hosts], or correct it");
    let sent = net.start(&[&args[..], &["none.toml"]].concat()).end();
    assert_eq!(code(&sent), 2, "{sent:?}");
    assert_says(&sent, "none.toml: it cannot be read");
}

//! The binary as its users see it: real processes on loopback. Each test has ports of its own, so
//! that all of them can run at once.

#[path = "lab/ports.rs"]
mod ports;

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::ports::free_port;

fn carom(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_carom"));
    command.args(args).stdin(Stdio::null());
    command
}

fn run(args: &[&str]) -> Output {
    run_with(args, &[])
}

/// Runs it to its end, but not for ever.
fn run_with(args: &[&str], more: &[String]) -> Output {
    let mut running = Running::start(args, more, Stdio::null());
    let stdout = running.stdout();
    let status = running.end();
    let stdout = stdout.join().expect("the reader does not panic").into_bytes();
    let mut lines = std::mem::take(&mut running.seen);
    lines.extend(running.lines.iter());
    Output { status, stdout, stderr: lines.join("\n").into_bytes() }
}

/// Flags that keep a test to itself.
fn alone(multicast_port: u16) -> [String; 4] {
    let port = multicast_port.to_string();
    ["--interface".into(), "127.0.0.1".into(), "--multicast-port".into(), port]
}

/// A child whose standard error is read line by line while it runs. It is killed when a test ends
/// early.
struct Running {
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl Running {
    fn start(args: &[&str], more: &[String], stdin: Stdio) -> Self {
        let mut child = carom(args)
            .args(more)
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary was built for this test");
        let stderr = child.stderr.take().expect("it is piped");
        let (to, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if to.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, lines, seen: Vec::new() }
    }

    /// Waits for a line on standard error that contains `text`.
    fn await_line(&mut self, text: &str) -> String {
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    if line.contains(text) {
                        return line;
                    }
                }
                Err(error) => panic!("no line with {text:?} ({error}) after {:#?}", self.seen),
            }
        }
    }

    fn interrupt(&self) {
        let id = i32::try_from(self.child.id()).expect("a process id is small");
        kill(Pid::from_raw(id), Signal::SIGINT).expect("our own child can be signalled");
    }

    /// Reads standard output to its end in a thread of its own.
    fn stdout(&mut self) -> thread::JoinHandle<String> {
        let mut stdout = self.child.stdout.take().expect("it is piped and taken once");
        thread::spawn(move || {
            let mut text = String::new();
            stdout.read_to_string(&mut text).expect("what carom writes here is text");
            text
        })
    }

    /// Waits for the end, not for ever.
    fn end(&mut self) -> ExitStatus {
        let give_up = Instant::now() + PATIENCE;
        while Instant::now() < give_up {
            if let Some(status) = self.child.try_wait().expect("it is our child") {
                return status;
            }
            thread::sleep(Duration::from_millis(5));
        }
        let rest: Vec<String> = self.lines.try_iter().collect();
        panic!("it does not end; it said {:#?}, {rest:#?}", self.seen);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail if it has ended, as it should have.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn every_help_has_an_example() {
    for verb in ["demo", "pub", "sub", "lock", "serve", "call", "doctor", "members", "completions"]
    {
        let output = run(&[verb, "--help"]);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{verb}");
        assert!(text.contains("Example") && text.contains(&format!("carom {verb}")), "{text}");
    }
}

#[test]
fn every_shell_has_completions() {
    for shell in ["bash", "zsh", "fish"] {
        let output = run(&["completions", shell]);
        assert!(output.status.success(), "{shell}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("rate-of-fire"), "{shell}");
    }
}

/// Asserts that the error is a line of cause with `cause` in it and a line of fix, and code 2.
fn assert_refused(output: &Output, cause: &str) {
    let text = String::from_utf8_lossy(&output.stderr);
    let error = text.find("error: ").unwrap_or_else(|| panic!("no error in {text}"));
    let lines: Vec<&str> = text[error..].lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(lines[0].contains(cause), "{text}");
    assert!(lines[1].starts_with("fix: ") && lines[1].len() > 10, "{text}");
    assert_eq!(output.status.code(), Some(2), "{text}");
}

#[test]
fn wrong_use_is_a_cause_a_fix_and_code_2() {
    assert_refused(&run(&[]), "verb");
    assert_refused(&run(&["pub"]), "GROUP");
    assert_refused(&run(&["demo", "--rate", "-5/s"]), "-5/s");
    assert_refused(&run(&["pub", "x", "--rate", "-5/s"]), "-5/s");
    assert_refused(&run(&["sub", "x", "--loss", "-5%"]), "-5%");
    assert_refused(&run(&["sub", "x", "--loss", "5"]), "5");
    assert_refused(&run(&["sub", "x", "--rate-of-fire", "99,5"]), "99");
    assert_refused(&run(&["pub", "x", "--linger", "10"]), "unit");
    assert_refused(&run(&["demo", "--nodes", "1"]), "--nodes");
    assert_refused(&run(&["demo", "--payload", "17MiB", "--nodes", "2"]), "17825792");
    assert_refused(&run(&["sub", "x", "--path", "pigeon"]), "pigeon");
    for verb in [&["sub", "x"][..], &["pub", "x"], &["demo"], &["doctor"], &["members"]] {
        let args = [verb, &["--interface", "nosuch0"]].concat();
        assert_refused(&run(&args), "nosuch0");
    }
    assert_refused(&run(&["doctor", "no.such.host.invalid"]), "no.such.host.invalid");
}

#[test]
fn a_seed_that_does_not_answer_is_refused() {
    // The port is ours and silent.
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    let seed = silent.local_addr().expect("it is bound").to_string();
    for verb in [&["sub", "x"][..], &["pub", "x"], &["members"]] {
        let output = run_with(&[verb, &["--seed", &seed]].concat(), &alone(17_411));
        assert_refused(&output, &seed);
    }
}

#[test]
fn a_seed_of_another_multicast_port_is_refused_with_this_ones() {
    let mut sub = Running::start(&["sub", "x"], &alone(17_421), Stdio::null());
    let joined = sub.await_line("joined");
    let seed = joined.split([' ', ',']).find(|word| word.starts_with("127.0.0.1:"));
    let args = ["sub", "x", "--seed", seed.expect("it says where it is")];
    let output = run_with(&args, &alone(17_422));
    assert_refused(&output, "does not answer");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("with --multicast-port 17422 as here"), "{text}");
}

#[test]
fn no_error_has_the_number_of_the_system() {
    let taken = std::net::UdpSocket::bind("0.0.0.0:0").expect("a port is free");
    let port = taken.local_addr().expect("it is bound").port().to_string();
    let folder = tempfile::tempdir().expect("a folder for the test");
    let store = folder.path().to_str().expect("it has a plain name");
    let control = ["control", "--no-http", "--listen", "127.0.0.1:0"];
    let here = ["--interface", "127.0.0.1", "--multicast-port", "17423"];
    let missing = "no/such/file";
    let cases: [(Vec<&str>, &str); 8] = [
        (
            [&["send", "Cargo.toml", "--to", "g", "--topology", missing], &here[..]].concat(),
            missing,
        ),
        ([&["send", missing, "--to", "g"], &here[..]].concat(), missing),
        ([&["recv", "--from", "g", "/proc/carom"], &here[..]].concat(), "/proc"),
        ([&control[..], &["--store", "/proc/carom"]].concat(), "/proc/carom"),
        ([&control[..], &["--store", store, "--topology", missing]].concat(), missing),
        (vec!["sub", "x", "--port", &port], &port),
        (vec!["doctor", "--listen", "--port", &port], &port),
        ([&["lock", "g", "l", "--", "/no/such/program"], &here[..]].concat(), "/no/such/program"),
    ];
    for (args, cause) in cases {
        let output = run(&args);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains("error: ") && text.contains(cause), "{args:?}: {text}");
        assert!(!text.contains("(os error"), "{args:?}: {text}");
    }
}

#[test]
fn a_group_named_like_a_pattern_is_taken_literally_and_says_so() {
    let mut sub = Running::start(&["sub", "prices.*"], &alone(17_424), Stdio::null());
    let note = sub.await_line("no wildcards");
    assert!(note.starts_with("note: ") && note.contains("prices.*"), "{note}");
    sub.await_line("joined prices.*");
    sub.interrupt();
    assert!(sub.end().success());
}

#[test]
fn a_port_that_is_taken_is_refused() {
    let taken = std::net::UdpSocket::bind("0.0.0.0:0").expect("a port is free");
    let port = taken.local_addr().expect("it is bound").port().to_string();
    for verb in [&["sub", "x"][..], &["pub", "x"], &["members"], &["doctor", "--listen"]] {
        assert_refused(&run(&[verb, &["--port", &port]].concat()), &port);
    }
}

#[test]
fn a_group_with_another_r_is_refused() {
    let ports = alone(17_412);
    let mut sub = Running::start(&["sub", "fire"], &ports, Stdio::null());
    sub.await_line("joined");
    let output = run_with(&["sub", "fire", "--rate-of-fire", "4,3"], &ports);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("(8,5)") && text.contains("(4,3)"), "{text}");
    assert_refused(&output, "fire");
}

#[test]
fn a_line_too_long_is_refused_and_the_lines_before_it_arrive() {
    let ports = alone(17_413);
    let mut sub = Running::start(&["sub", "long", "--count", "2"], &ports, Stdio::null());
    let received = sub.stdout();
    sub.await_line("joined");
    let mut publisher = Running::start(&["pub", "long"], &ports, Stdio::piped());
    let mut stdin = publisher.child.stdin.take().expect("it is piped");
    let text = format!("one\ntwo\n{}\nnever\n", "x".repeat(17_000_000));
    stdin.write_all(text.as_bytes()).expect("carom reads its input");
    drop(stdin);
    let error = publisher.await_line("error: ");
    assert!(error.contains("line 3") && error.contains("17000000 bytes"), "{error}");
    let fix = publisher.await_line("fix: ");
    assert!(fix.contains("split it, for example with `fold -b`"), "{fix}");
    assert_eq!(publisher.end().code(), Some(2));
    assert!(sub.end().success(), "{:#?}", sub.seen);
    let received = received.join().expect("the reader does not panic");
    assert_eq!(sorted(&received), ["one", "two"]);
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn three_subscribers_at_five_percent_loss_get_every_line_once() {
    let ports = alone(17_414);
    let count = 3_000;
    let args = ["sub", "numbers", "--count", "3000", "--loss", "5%"];
    let mut subs: Vec<Running> =
        (0..3).map(|_| Running::start(&args, &ports, Stdio::null())).collect();
    let outputs: Vec<_> = subs.iter_mut().map(Running::stdout).collect();
    for sub in &mut subs {
        sub.await_line("joined");
    }
    let args = ["pub", "numbers", "--rate", "2000/s", "--wait-for", "3", "--json"];
    let mut publisher = Running::start(&args, &ports, Stdio::piped());
    let summary = publisher.stdout();
    let mut stdin = publisher.child.stdin.take().expect("it is piped");
    for number in 1..=count {
        writeln!(stdin, "{number}").expect("carom reads its input");
    }
    drop(stdin);
    assert!(publisher.end().success(), "{:#?}", publisher.seen);
    let summary: Value = serde_json::from_str(&summary.join().expect("the reader does not panic"))
        .expect("it is JSON");
    assert_eq!((&summary["messages"], &summary["safe"]), (&count.into(), &true.into()));
    let all: Vec<String> = (1..=count).map(|number| number.to_string()).collect();
    for (sub, output) in subs.iter_mut().zip(outputs) {
        assert!(sub.end().success(), "{:#?}", sub.seen);
        let output = output.join().expect("the reader does not panic");
        let mut lines: Vec<&str> = output.lines().collect();
        lines.sort_by_key(|line| line.parse::<u32>().expect("it is a number"));
        assert_eq!(lines, all);
    }
}

#[test]
fn frames_carry_any_bytes() {
    let ports = alone(17_415);
    let frames: [&[u8]; 3] = [b"a\nb", b"", &[0, 255, 10]];
    let bytes: Vec<u8> = frames
        .iter()
        .flat_map(|frame| [&[0, 0, 0, frame.len() as u8][..], frame].concat())
        .collect();
    let args = ["sub", "frames", "--frames", "--count", "3"];
    let mut sub = Running::start(&args, &ports, Stdio::null());
    let mut stdout = sub.child.stdout.take().expect("it is piped");
    sub.await_line("joined");
    let mut publisher = Running::start(&["pub", "frames", "--frames"], &ports, Stdio::piped());
    publisher
        .child
        .stdin
        .take()
        .expect("it is piped")
        .write_all(&bytes)
        .expect("carom reads its input");
    assert!(sub.end().success(), "{:#?}", sub.seen);
    let mut received = Vec::new();
    stdout.read_to_end(&mut received).expect("a pipe can be read");
    // Messages may come in any order: what came is the same frames.
    let mut rest = &received[..];
    let mut came = Vec::new();
    while let Some((length, more)) = rest.split_first_chunk::<4>() {
        let (frame, more) = more.split_at(u32::from_be_bytes(*length) as usize);
        came.push(frame);
        rest = more;
    }
    came.sort_unstable();
    let mut wanted = frames.to_vec();
    wanted.sort_unstable();
    assert_eq!(came, wanted);
    assert!(publisher.end().success(), "{:#?}", publisher.seen);
}

#[test]
fn ctrl_c_ends_pub_and_sub_with_a_summary() {
    let ports = alone(17_416);
    let mut sub = Running::start(&["sub", "quiet"], &ports, Stdio::null());
    sub.await_line("joined");
    // Its input stays open and says nothing.
    let mut publisher = Running::start(&["pub", "quiet"], &ports, Stdio::piped());
    let mut stdin = publisher.child.stdin.take().expect("it is piped");
    writeln!(stdin, "hello").expect("carom reads its input");
    let mut hello = [0; 6];
    let mut stdout = sub.child.stdout.take().expect("it is piped");
    stdout.read_exact(&mut hello).expect("the message comes before anything ends");
    assert_eq!(&hello, b"hello\n");
    publisher.interrupt();
    publisher.await_line("sent 1 message to");
    assert!(publisher.end().success());
    sub.interrupt();
    sub.await_line("received 1 message of");
    assert!(sub.end().success());
    drop(stdin);
}

#[test]
fn ctrl_c_ends_a_publisher_that_waits_for_members() {
    let mut publisher = Running::start(&["pub", "nobody"], &alone(17_417), Stdio::null());
    publisher.await_line("waiting for 1 member of nobody");
    publisher.interrupt();
    publisher.await_line("sent 0 messages");
    assert!(publisher.end().success());
}

#[test]
fn a_reader_that_goes_away_ends_a_subscriber() {
    let ports = alone(17_418);
    let mut sub = Running::start(&["sub", "pipe"], &ports, Stdio::null());
    sub.await_line("joined");
    drop(sub.child.stdout.take());
    let mut publisher = Running::start(&["pub", "pipe"], &ports, Stdio::piped());
    let mut stdin = publisher.child.stdin.take().expect("it is piped");
    writeln!(stdin, "hello").expect("carom reads its input");
    sub.await_line("received 1 message of");
    assert!(sub.end().success(), "{:#?}", sub.seen);
    drop(stdin);
    // It is not known to be safe with the member that has left, unless that was asked before.
    let code = publisher.end().code();
    let said = publisher.lines.iter().collect::<Vec<_>>().join("\n");
    assert_eq!(code, Some(i32::from(said.contains("not safe: every member has left"))), "{said}");
}

#[test]
fn a_subscriber_whose_output_is_stuck_counts_what_it_drops() {
    let ports = alone(17_420);
    // Nobody reads its output, which stays open.
    let mut sub = Running::start(&["sub", "stuck"], &ports, Stdio::null());
    sub.await_line("joined");
    let mut publisher = Running::start(&["pub", "stuck"], &ports, Stdio::piped());
    let mut stdin = publisher.child.stdin.take().expect("it is piped");
    // More than pipes and buffers take, and the 65,536 events of a queue.
    let lines = format!("{}\n", "x".repeat(99)).repeat(70_000);
    stdin.write_all(lines.as_bytes()).expect("carom reads its input");
    drop(stdin);
    publisher.end();
    sub.interrupt();
    let summary = sub.await_line("received ");
    let count = |what: &str| -> u64 {
        let before = summary.split(what).next().expect("there is a beginning");
        let number = before.rsplit(' ').next().expect("there is an end");
        number.parse().unwrap_or_else(|error| panic!("{error}, {what}: {summary}"))
    };
    let (dropped, unread) = (count(" messages found no room"), count(" events in the queue"));
    assert!(dropped > 0 && count(" lost; the output was slow") >= dropped, "{summary}");
    assert!(unread > 0, "{summary}");
    sub.await_line("ended by force: the output was not taken");
    assert_eq!(sub.end().code(), Some(130));
}

#[test]
fn the_demo_delivers_everything_and_tells_what_it_cost() {
    let args = ["demo", "--nodes", "4", "--groups", "8", "--seconds", "2", "--json"];
    let mut demo = Running::start(&args, &[], Stdio::null());
    let output = demo.stdout();
    let status = demo.end();
    let output = output.join().expect("the reader does not panic");
    let last = output.lines().last().unwrap_or_else(|| panic!("{:#?}", demo.seen));
    let report: Value = serde_json::from_str(last).expect("it is JSON");
    for field in "losses_injected recovered/fec recovered/nak recovery_ms/p50 recovery_ms/p99 \
                  recovery_ms/max delivery_ms/p50 delivery_ms/p99 delivery_ms/p999 \
                  delivery_ms/max overhead xors_per_packet"
        .split_whitespace()
    {
        let value = report.pointer(&format!("/{field}"));
        assert!(value.is_some_and(Value::is_number), "{field} in {report}");
    }
    assert_eq!((&report["nodes"], &report["groups"]), (&4.into(), &8.into()));
    assert_eq!(report["delivered"], report["expected"], "{report}");
    assert!(report["sent"].as_u64() > Some(0), "{report}");
    assert_eq!((&report["duplicates"], &report["lost"]), (&0.into(), &0.into()), "{report}");
    assert!(report["path"].is_string(), "{report}");
    assert!(status.success(), "{report}");
}

#[test]
fn ctrl_c_ends_the_demo_with_a_summary() {
    let args = ["demo", "--nodes", "3", "--groups", "4", "--seconds", "600"];
    let mut demo = Running::start(&args, &[], Stdio::null());
    let output = demo.stdout();
    // The header, and then the row of the first second.
    demo.await_line("second");
    demo.await_line("1 ");
    demo.interrupt();
    let status = demo.end();
    let output = output.join().expect("the reader does not panic");
    assert!(output.contains("messages sent") && output.contains("path"), "{output}");
    assert!(status.success(), "{output}");
}

#[test]
fn members_shows_who_is_there() {
    let ports = alone(17_419);
    let mut sub = Running::start(&["sub", "here"], &ports, Stdio::null());
    let joined = sub.await_line("joined");
    let output = run_with(&["members", "--json"], &ports);
    let report: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    let endpoint = report["members"][0]["endpoint"].as_str().expect("somebody is there");
    assert!(joined.contains(endpoint), "{joined} {report}");
    assert!(output.status.success());
}

#[test]
fn two_doctors_tell_what_passes_between_them() {
    let port = free_port();
    let args = ["doctor", "--listen", "--port", &port.to_string()];
    let mut listener = Running::start(&args, &[], Stdio::null());
    listener.await_line("listening");
    let output = run(&["doctor", &format!("127.0.0.1:{port}"), "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    let findings = report["findings"].as_array().expect("it is a list");
    let of = |check| findings.iter().find(|finding| finding["check"] == check);
    assert_eq!(of("unicast").expect("it was looked at")["level"], "ok");
    assert_eq!(of("datagram size").expect("it was looked at")["level"], "ok");
    assert!(of("multicast to").is_some() && of("multicast from").is_some(), "{report}");
    assert_eq!(output.status.code(), Some(i32::from(report["worst"] == "bad")));
    listener.interrupt();
    assert!(listener.end().success());
}

#[test]
fn the_doctor_gives_each_finding_a_cause_and_what_is_not_well_a_fix() {
    let output = run(&["doctor", "--interface", "127.0.0.1", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    let findings = report["findings"].as_array().expect("it is a list");
    assert!(findings.len() >= 8, "{report}");
    for finding in findings {
        assert!(finding["cause"].as_str().is_some_and(|cause| !cause.is_empty()), "{finding}");
        assert_eq!(finding["fix"].is_string(), finding["level"] != "ok", "{finding}");
    }
    assert_eq!(output.status.code(), Some(i32::from(report["worst"] == "bad")));
}

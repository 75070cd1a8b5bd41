//! Publishers, subscribers, and the demo.

use std::io::{Read as _, Write as _};
use std::process::{ChildStdin, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::running::{Running, alone};

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
    // Messages may arrive in any order, so sets of frames are compared.
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

fn greeted(group: &str, port: u16) -> (Running, Running, ChildStdin) {
    let ports = alone(port);
    let mut sub = Running::start(&["sub", group], &ports, Stdio::null());
    sub.await_line("joined");
    let mut publisher = Running::start(&["pub", group], &ports, Stdio::piped());
    let mut stdin = publisher.child.stdin.take().expect("it is piped");
    writeln!(stdin, "hello").expect("carom reads its input");
    let mut hello = [0; 6];
    let mut stdout = sub.child.stdout.take().expect("it is piped");
    stdout.read_exact(&mut hello).expect("the message comes before anything ends");
    assert_eq!(&hello, b"hello\n");
    sub.child.stdout = Some(stdout);
    (sub, publisher, stdin)
}

#[test]
fn ctrl_c_ends_pub_and_sub_with_a_summary() {
    let (mut sub, mut publisher, stdin) = greeted("quiet", 17_416);
    publisher.interrupt();
    publisher.await_line("sent 1 message to quiet");
    assert!(publisher.end().success(), "all was confirmed: {:#?}", publisher.seen);
    sub.interrupt();
    sub.await_line("received 1 message of");
    assert!(sub.end().success());
    drop(stdin);
}

#[test]
fn interrupted_publisher_leaves_in_order_despite_silent_member() {
    let (sub, mut publisher, mut stdin) = greeted("stopped", 17_431);
    sub.signal(Signal::SIGSTOP);
    writeln!(stdin, "unheard").expect("carom reads its input");
    // The publisher may be interrupted before it has read the message.
    thread::sleep(Duration::from_millis(300));
    publisher.interrupt();
    let sent = publisher.await_line("sent ");
    let code = if sent.contains("sent 2 messages") { 130 } else { 0 };
    assert_eq!(publisher.end().code(), Some(code), "{sent}");
    let rest: Vec<String> = publisher.lines.iter().collect();
    assert!(!rest.iter().any(|line| line.contains("by force")), "{rest:#?}");
    sub.signal(Signal::SIGKILL);
    drop(stdin);
}

/// `--wait-for 0` permits a run without members: it is reported, but is not a failure.
#[test]
fn publisher_waiting_for_no_member_ends_with_code_0_not_safe() {
    let ports = alone(17_423);
    let publish = ["pub", "nobody", "--wait-for", "0"];
    for (more, says) in [(&[][..], true), (&["--json"][..], false)] {
        let args = [&publish[..], more].concat();
        let mut publisher = Running::start(&args, &ports, Stdio::piped());
        let summary = publisher.stdout();
        let mut stdin = publisher.child.stdin.take().expect("it is piped");
        writeln!(stdin, "unheard").expect("carom reads its input");
        drop(stdin);
        if says {
            publisher.await_line("not safe: there was no other member");
        }
        assert_eq!(publisher.end().code(), Some(0), "{:#?}", publisher.seen);
        let summary = summary.join().expect("the reader does not panic");
        if !says {
            let summary: Value = serde_json::from_str(&summary).expect("it is JSON");
            let told = (&summary["messages"], &summary["safe"], &summary["members"]);
            assert_eq!(told, (&1.into(), &false.into(), &0.into()), "{summary}");
        }
    }
}

#[test]
fn ctrl_c_ends_a_publisher_that_waits_for_members() {
    let mut publisher = Running::start(&["pub", "nobody"], &alone(17_417), Stdio::null());
    publisher.await_line("waiting for 1 member of nobody");
    publisher.interrupt();
    publisher.await_line("sent 0 messages");
    assert_eq!(publisher.end().code(), Some(130));
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
    // The messages are not known to be safe with the member that has left, unless it had confirmed
    // before.
    let code = publisher.end().code();
    let said = publisher.lines.iter().collect::<Vec<_>>().join("\n");
    assert_eq!(code, Some(i32::from(said.contains("not safe: all members left"))), "{said}");
}

#[test]
fn subscriber_with_stuck_output_counts_its_drops() {
    let ports = alone(17_420);
    // The output of the subscriber stays open, but is not read.
    let mut sub = Running::start(&["sub", "stuck"], &ports, Stdio::null());
    sub.await_line("joined");
    let mut publisher = Running::start(&["pub", "stuck"], &ports, Stdio::piped());
    let mut stdin = publisher.child.stdin.take().expect("it is piped");
    // More than pipes and buffers hold, plus the 65,536 events of a queue.
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
    let (dropped, unread) = (count(" messages dropped"), count(" events in the queue"));
    assert!(dropped > 0 && count(" lost; slow output") >= dropped, "{summary}");
    assert!(unread > 0, "{summary}");
    sub.await_line("terminated by force: the command did not end within 800ms");
    assert_eq!(sub.end().code(), Some(130));
}

#[test]
fn demo_delivers_everything_and_reports_its_cost() {
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
    // The header, then the row of the first second.
    demo.await_line("second");
    demo.await_line("1 ");
    demo.interrupt();
    let status = demo.end();
    let output = output.join().expect("the reader does not panic");
    assert!(output.contains("messages sent") && output.contains("path"), "{output}");
    assert!(status.success(), "{output}");
}

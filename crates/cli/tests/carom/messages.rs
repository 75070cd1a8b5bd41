use std::io::{self, Read as _, Write as _};
use std::process::ChildStdin;
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::lan::Lan;
use crate::process::{Running, carom, parsed, start};

#[test]
fn three_subscribers_at_five_percent_loss_get_every_line_once() {
    let lan = Lan::new("17414");
    let count = 3_000;
    let args = ["sub", "numbers", "--count", "3000", "--loss", "5%"];
    let mut subs = [(); 3].map(|()| lan.start(&args));
    for sub in &mut subs {
        sub.said.wait_for("joined");
    }
    let args = ["pub", "numbers", "--rate", "2000/s", "--wait-for", "3", "--json"];
    let mut publisher = lan.start_piped(&args);
    publisher.feed((1..=count).map(|number| number.to_string()));
    publisher.end_with(0);
    let summary = publisher.json();
    assert_eq!((&summary["messages"], &summary["safe"]), (&count.into(), &true.into()));
    let all: Vec<String> = (1..=count).map(|number| number.to_string()).collect();
    for sub in &mut subs {
        sub.end_with(0);
        sub.wrote.seen.sort_by_key(|line| line.parse::<u32>().expect("it is a number"));
        assert_eq!(sub.wrote.seen, all);
    }
}

#[test]
fn frames_carry_any_bytes() {
    let lan = Lan::new("17415");
    let frames: [&[u8]; 3] = [b"a\nb", b"", &[0, 255, 10]];
    let bytes: Vec<u8> = frames
        .iter()
        .flat_map(|frame| [&[0, 0, 0, frame.len() as u8][..], frame].concat())
        .collect();
    let (mut stdout, end) = io::pipe().expect("a pipe");
    // The subscriber is at the default port, or at a free one if that is taken.
    let own = ["--interface", "127.0.0.1", "--multicast-port", "17415"];
    let sub = carom(&[&["sub", "frames", "--frames", "--count", "3"][..], &own].concat());
    let mut sub = Running::start_into(sub, end.into());
    sub.said.wait_for("joined");
    let mut publisher = lan.start_piped(&["pub", "frames", "--frames"]);
    publisher.stdin().write_all(&bytes).expect("carom reads its input");
    sub.end_with(0);
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
    publisher.end_with(0);
}

/// Starts a subscriber that has received a message, and its publisher, whose input stays open.
fn greeted(group: &str, port: &'static str) -> (Running, Running, ChildStdin) {
    let lan = Lan::new(port);
    let mut sub = lan.start(&["sub", group]);
    sub.said.wait_for("joined");
    let mut publisher = lan.start_piped(&["pub", group]);
    let mut stdin = publisher.stdin();
    writeln!(stdin, "hello").expect("carom reads its input");
    assert_eq!(sub.wrote.wait_for(""), "hello");
    (sub, publisher, stdin)
}

#[test]
fn ctrl_c_ends_pub_and_sub_with_a_summary() {
    let (mut sub, mut publisher, stdin) = greeted("quiet", "17416");
    publisher.interrupt();
    publisher.end_saying("sent 1 message to quiet", 0);
    sub.interrupt();
    sub.end_saying("received 1 message of", 0);
    drop(stdin);
}

#[test]
fn interrupted_publisher_leaves_in_order_despite_silent_member() {
    let (sub, mut publisher, mut stdin) = greeted("stopped", "17431");
    sub.signal(Signal::SIGSTOP);
    writeln!(stdin, "unheard").expect("carom reads its input");
    // The publisher may be interrupted before it has read the message.
    thread::sleep(Duration::from_millis(300));
    publisher.interrupt();
    let sent = publisher.said.wait_for("sent ");
    publisher.end_with(if sent.contains("sent 2 messages") { 130 } else { 0 });
    let said = &publisher.said.seen;
    assert!(!said.iter().any(|line| line.contains("by force")), "{said:#?}");
    sub.signal(Signal::SIGKILL);
    drop(stdin);
}

#[test]
fn publisher_waiting_for_no_member_ends_with_code_0_not_safe() {
    let lan = Lan::new("17423");
    let publish = ["pub", "empty", "--wait-for", "0"];
    for is_json in [false, true] {
        let more: &[&str] = if is_json { &["--json"] } else { &[] };
        let mut publisher = lan.start_piped(&[&publish[..], more].concat());
        publisher.feed(["unheard".to_owned()].into_iter());
        publisher.end_with(0);
        if is_json {
            let summary = publisher.json();
            let told = (&summary["messages"], &summary["safe"], &summary["members"]);
            assert_eq!(told, (&1.into(), &false.into(), &0.into()), "{summary}");
        } else {
            let said = publisher.said.seen.join("\n");
            assert!(said.contains("not safe: there was no other member"), "{said}");
        }
    }
}

#[test]
fn ctrl_c_ends_a_publisher_that_waits_for_members() {
    let mut publisher = Lan::new("17417").start(&["pub", "empty"]);
    publisher.said.wait_for("waiting for 1 member of empty");
    publisher.interrupt();
    publisher.end_saying("sent 0 messages", 130);
}

#[test]
fn a_reader_that_goes_away_ends_a_subscriber() {
    let lan = Lan::new("17418");
    let (stdout, end) = io::pipe().expect("a pipe");
    let mut sub = Running::start_into(lan.command(&["sub", "pipe"]), end.into());
    sub.said.wait_for("joined");
    drop(stdout);
    let mut publisher = lan.start_piped(&["pub", "pipe"]);
    let mut stdin = publisher.stdin();
    writeln!(stdin, "hello").expect("carom reads its input");
    sub.end_saying("received 1 message of", 0);
    drop(stdin);
    // The messages are not known to be safe with the member that left without confirming.
    let code = publisher.end().code();
    let said = publisher.said.seen.join("\n");
    assert_eq!(code, Some(i32::from(said.contains("not safe: all members left"))), "{said}");
}

#[test]
fn subscriber_with_stuck_output_counts_its_drops() {
    let lan = Lan::new("17420");
    // The output of the subscriber stays open, but is not read.
    let (stdout, end) = io::pipe().expect("a pipe");
    let mut sub = Running::start_into(lan.command(&["sub", "stuck"]), end.into());
    sub.said.wait_for("joined");
    let mut publisher = lan.start_piped(&["pub", "stuck"]);
    // More than pipes and buffers hold, plus the 65,536 events of a queue.
    publisher.feed(std::iter::repeat_n("x".repeat(99), 70_000));
    publisher.end();
    sub.interrupt();
    let summary = sub.said.wait_for("received ");
    let count = |what: &str| -> u64 {
        let before = summary.split(what).next().expect("there is a beginning");
        let number = before.rsplit(' ').next().expect("there is an end");
        number.parse().unwrap_or_else(|error| panic!("{error}, {what}: {summary}"))
    };
    let (dropped, unread) = (count(" messages dropped"), count(" events still in the queue"));
    assert!(dropped > 0 && count(" lost; slow output") >= dropped, "{summary}");
    assert!(unread > 0, "{summary}");
    sub.end_saying("terminated by force: the command did not end within 800ms", 130);
    drop(stdout);
}

#[test]
fn demo_delivers_everything_and_reports_its_cost() {
    let args = ["demo", "--nodes", "4", "--groups", "8", "--seconds", "2", "--json"];
    let demo = start(&args).ended();
    let last = demo.wrote.seen.last().unwrap_or_else(|| panic!("{:#?}", demo.said.seen));
    let report = parsed(last);
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
    assert_eq!(demo.code, Some(0), "{report}");
}

#[test]
fn ctrl_c_ends_the_demo_with_a_summary() {
    let mut demo = start(&["demo", "--nodes", "3", "--groups", "4", "--seconds", "600"]);
    // The header, then the row of the first second.
    demo.said.wait_for("second");
    demo.said.wait_for("1 ");
    demo.stop();
    let output = demo.wrote.seen.join("\n");
    assert!(output.contains("messages sent") && output.contains("path"), "{output}");
}

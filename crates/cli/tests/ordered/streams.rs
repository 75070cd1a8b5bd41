use nix::sys::signal::Signal;
use serde_json::Value;

use crate::process::{Running, parsed};
use crate::{Lan, output};

#[test]
fn all_subscribers_write_all_lines_in_one_order() {
    let lan = Lan::new("17453");
    let subs: [Running; 3] = lan.subs(&["--count", "600", "--loss", "5%"]);
    let args = ["pub", "accounts", "--order", "total", "--wait-for", "3"];
    let mut publishers = ["a", "b"].map(|name| {
        let mut publisher = lan.start_piped(&args);
        publisher.feed((0..300).map(move |number: u32| format!("{name}{number}")));
        publisher
    });
    let wrote = subs.map(|sub| output(sub, 0));
    assert_eq!(wrote[0].len(), 600);
    assert!(wrote.iter().all(|lines| *lines == wrote[0]), "{wrote:#?}");
    for (name, publisher) in ["a", "b"].iter().zip(&mut publishers) {
        let own = wrote[0].iter().filter(|line| line.starts_with(name));
        assert!(
            own.eq((0..300).map(|number| format!("{name}{number}")).collect::<Vec<_>>().iter())
        );
        publisher.end_saying("all delivered (totally ordered)", 0);
    }
}

#[test]
fn each_promise_is_requested_kept_and_reported() {
    let lan = Lan::new("17454");
    let mut subs: [Running; 2] = lan.subs(&["--json"]);
    let promises = [
        (&["--order", "source"][..], "source ordered"),
        (&["--resilience", "1"][..], "1 resilient"),
        (&["--resilience", "majority"][..], "majority resilient"),
        (&["--order", "total", "--resilience", "all"][..], "totally resilient"),
    ];
    for (flags, promise) in promises {
        let mut publisher =
            lan.start_piped(&[&["pub", "accounts", "--wait-for", "2", "--json"], flags].concat());
        publisher.feed(["first".to_owned(), "second".to_owned()].into_iter());
        publisher.end_with(0);
        let summary = publisher.json();
        assert_eq!((&summary["qos"], &summary["safe"]), (&promise.into(), &true.into()));
        assert_eq!((&summary["delivered"], &summary["in_doubt"]), (&2.into(), &0.into()));
        for sub in &mut subs {
            sub.wrote.wait_for("first");
            sub.wrote.wait_for("second");
            let left = sub.wrote.wait_for("\"left\":[\"");
            let event = parsed(&left);
            assert_eq!((&event["event"], &event["news"]), (&"ring".into(), &"view".into()));
            assert_eq!(event["members"].as_array().map(Vec::len), Some(2), "{event}");
        }
    }
}

#[test]
fn interrupted_member_has_left_and_killed_one_has_failed() {
    let lan = Lan::new("17455");
    let [mut first, mut second, mut third, mut fourth] = lan.subs(&[]);
    fourth.interrupt();
    fourth.end_saying("received 0 messages of accounts in order", 0);
    // The nodes that queried the ring have left as well.
    let is_it = |line: &str| line.contains(" left, ") && line.contains("3 members now");
    first.said.wait_until("the leave of one of four", is_it);
    third.kill();
    let failed = first.said.wait_for(" failed, decided by ");
    assert!(failed.contains("2 members now"), "{failed}");
    second.kill();
    let minority = first.said.wait_for("minority: this partition may not continue");
    assert!(minority.contains("2 of 2 members"), "{minority}");
    first.stop();
}

#[test]
fn publisher_in_a_minority_reports_unknown_messages() {
    let lan = Lan::new("17456");
    let mut subs: [Running; 2] = lan.subs(&[]);
    let args = ["pub", "accounts", "--ordered", "--wait-for", "2", "--linger", "500ms"];
    let mut publisher = lan.start_piped(&args);
    let stdin = publisher.stdin();
    publisher.said.wait_for("joined, decided by");
    subs.iter_mut().for_each(Running::kill);
    publisher.said.wait_for("minority: this partition may not continue");
    std::io::Write::write_all(&mut &stdin, b"into the void\n").expect("carom reads its input");
    drop(stdin);
    publisher.end_saying("0 delivered (totally ordered); 1 still unknown", 1);
}

#[test]
fn removed_subscriber_is_notified_and_rejoins_or_ends() {
    let lan = Lan::new("17457");
    let [mut first, mut second] = lan.subs(&[]);
    let mut away = [lan.sub(&["--json"]), lan.sub(&["--no-rejoin"])];
    lan.await_ring(4);
    // One after another, because both together are half of the ring.
    for sub in &mut away {
        sub.signal(Signal::SIGSTOP);
        first.said.wait_for(" failed, decided by ");
        sub.signal(Signal::SIGCONT);
        let removed = sub.said.wait_for("removed from the ring: ");
        assert!(removed.contains("could not reach this node"), "{removed}");
    }
    let [mut again, mut out] = away;
    assert!(again.wrote.wait_for("\"removed\"").contains("\"rejoins\":true"));
    out.end_saying("1 removal of this node", 1);
    let mut publisher = lan.start_piped(&["pub", "accounts", "--ordered", "--wait-for", "3"]);
    publisher.feed(std::iter::once("back again".to_owned()));
    publisher.end_with(0);
    again.wrote.wait_for("back again");
    again.interrupt();
    again.end_with(1);
    for sub in [&mut first, &mut second] {
        sub.wrote.wait_for("back again");
        sub.stop();
    }
}

#[test]
fn ring_is_shown_in_token_order_without_events_at_members() {
    let lan = Lan::new("17458");
    let mut subs = [(); 3].map(|()| lan.sub(&["--json"]));
    lan.await_ring(3);
    let ring = lan.ring(&[]);
    let members = ring["members"].as_array().expect("it is a list");
    let turns = members.iter().filter(|member| member["token"] == true).count();
    assert_eq!((members.len(), turns), (3, 1), "{ring}");
    assert_eq!((&ring["needed"], &ring["working"]), (&2.into(), &true.into()), "{ring}");
    let name = |ring: &Value| {
        let members = ring["members"].as_array().expect("it is a list").iter();
        let nodes: Vec<Value> = members.map(|member| member["node"].clone()).collect();
        (ring["epoch"].clone(), ring["version"].clone(), nodes)
    };
    for _ in 0..3 {
        assert_eq!(name(&lan.ring(&[])), name(&ring));
    }
    let text = lan.start(&["members", "accounts"]).ended_with(0);
    for part in ["ring of accounts: view 1.", "3 members", "turn", "here", "no lock is held"] {
        assert!(text.wrote.seen.iter().any(|line| line.contains(part)), "{:#?}", text.wrote.seen);
    }
    // The next change that the members see is the leave of one of them.
    let [first, .., last] = &mut subs;
    let view = |line: &str| {
        let told = parsed(line);
        (told["news"] == "view").then_some(told)
    };
    first.wrote.wait_until("the ring that was shown", |line| {
        view(line).is_some_and(|view| view["version"] == ring["version"])
    });
    last.stop();
    let left = first.wrote.wait_until("the next view", |line| view(line).is_some());
    let left = view(&left).expect("it is one");
    assert_eq!(left["left"].as_array().map(Vec::len), Some(1), "{left}");
    let version = ring["version"].as_u64().expect("a number");
    assert_eq!(left["version"], version + 1, "{left}");
    subs[..2].iter_mut().for_each(Running::stop);
}

#[test]
fn publisher_interrupted_while_awaiting_a_ring_has_code_130() {
    let lan = Lan::new("17484");
    let mut publisher = lan.start(&["pub", "numbers", "--quorum-of", "3"]);
    publisher.said.wait_for("waiting for quorum");
    publisher.interrupt();
    publisher.end_with(130);
}

#[test]
fn message_arrives_although_both_standard_errors_are_full() {
    let lan = Lan::new("17480");
    let sub = lan.start_unheard(&["sub", "numbers", "--count", "1"]);
    let mut publisher = lan.start_unheard(&["pub", "numbers"]);
    publisher.feed(std::iter::once("1".to_owned()));
    publisher.end_with(0);
    assert_eq!(output(sub, 0), ["1"]);
}

#[test]
fn group_without_members_has_no_ring() {
    let lan = Lan::new("17459");
    let shown = |args: &[&str], code: i32| {
        let look = ["members", "nobodys", "--timeout", "300ms"];
        let mut look = lan.start(&[&look, args].concat()).ended_with(code);
        (std::mem::take(&mut look.wrote.seen), std::mem::take(&mut look.said.seen))
    };
    let (wrote, said) = shown(&[], 1);
    let line = "group 'nobodys' has no members: no other node is online";
    assert_eq!((wrote.len(), said.last().map(String::as_str)), (0, Some(line)), "{said:#?}");
    let mut sub = lan.sub(&[]);
    let (wrote, said) = shown(&["--json"], 1);
    assert_eq!(wrote, ["{\"group\":\"nobodys\",\"rings\":[]}"]);
    assert!(
        said.iter().any(|line| line.starts_with("group 'nobodys' has no members: ")),
        "{said:#?}"
    );
    sub.stop();
}

use std::sync::atomic::Ordering;

use crate::lab::{RunCarom as _, build_lab};
use crate::{MTU, assert_wrote, lines_until_enough, number, numbered, read_to_the_last, subscribe};

#[test]
fn killed_subscriber_costs_the_others_nothing() {
    let Some(lab) = build_lab(4, MTU) else { return };
    let [receivers @ .., sender] = lab.hosts() else { panic!("there are four") };
    let mut subs = subscribe(receivers, &["--loss", "5%"]);
    let mut victim = subs.remove(0);
    let args = ["pub", "numbers", "--rate", "5000/s", "--wait-for", "3"];
    let mut publisher = sender.pipe(numbered(20).take(10_000), &args);
    victim.wrote.wait_until("a quarter of the messages", |line| number(line) >= 2_500);
    victim.kill();
    publisher.end_with(0);
    let summary = publisher.said.seen.last().expect("it prints a summary");
    let safe = "safe with 2 members";
    assert!(summary.contains("sent 10000 messages") && summary.contains(safe), "{summary}");
    let failures = publisher.said.seen.iter().filter(|line| line.starts_with("failed: ")).count();
    assert_eq!(failures, 1, "{:#?}", publisher.said.seen);
    let last = victim.wrote.seen.iter().map(|line| number(line)).max();
    assert!(last < Some(10_000), "it was killed too late");
    for sub in &mut subs {
        assert_eq!(read_to_the_last(sub, 10_000), 1);
        sub.interrupt();
        assert_wrote(sub, 1, 10_000);
    }
}

#[test]
fn messages_to_a_killed_only_subscriber_are_not_safe() {
    let Some(lab) = build_lab(2, MTU) else { return };
    let [receiver, sender] = lab.hosts() else { panic!("there are two") };
    let mut victim = subscribe(std::slice::from_ref(receiver), &[]).remove(0);
    let args = ["pub", "numbers", "--rate", "5000/s", "--json"];
    let mut publisher = sender.pipe(numbered(20).take(10_000), &args);
    victim.wrote.wait_until("a quarter of the messages", |line| number(line) >= 2_500);
    victim.kill();
    publisher.end_with(1);
    let report = publisher.json();
    assert_eq!((&report["safe"], &report["members"]), (&false.into(), &0.into()), "{report}");
}

#[test]
fn late_subscriber_gets_everything_from_its_join_on() {
    let Some(lab) = build_lab(3, MTU) else { return };
    let [early, late, sender] = lab.hosts() else { panic!("there are three") };
    let mut first = subscribe(std::slice::from_ref(early), &["--loss", "5%"]).remove(0);
    // Long lines fill the pipe quickly, so that written lines are not far behind sent ones.
    let (lines, is_enough) = lines_until_enough();
    let args = ["pub", "numbers", "--rate", "4000/s", "--json"];
    let mut publisher = sender.pipe(lines, &args);
    first.wrote.wait_until("the thousandth", |line| number(line) >= 1_000);
    let mut second = subscribe(std::slice::from_ref(late), &["--loss", "5%"]).remove(0);
    let began = number(&second.wrote.wait_for(" "));
    second.wrote.wait_until("some thousand", |line| number(line) >= began + 2_000);
    is_enough.store(true, Ordering::SeqCst);
    publisher.end_with(0);
    let report = publisher.json();
    assert_eq!((&report["safe"], &report["members"]), (&true.into(), &2.into()), "{report}");
    let count = report["messages"].as_u64().expect("it is a count");
    for (sub, earliest) in [(&mut first, 1), (&mut second, 1_001)] {
        let least = read_to_the_last(sub, count);
        assert!(least >= earliest);
        sub.interrupt();
        assert_wrote(sub, least, count);
    }
}

//! The binary on several hosts: a network namespace each, with a switch between them. It needs root
//! and `ip`; without them each test passes and says on standard error that it did not run. Beyond
//! that it uses `bash` and `setpriv`, which a Linux with `ip` has, and where it is there `nft`.

mod lab;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lab::{Counters, Host, Lab, Running, lacking, skipped};
use serde_json::Value;
use tempfile::TempDir;

const MTU: u32 = 1500;
/// Bytes of a message where it matters how many bytes go which way.
const PAYLOAD: usize = 500;

/// Lines that begin with 1, 2 and so on and have `bytes` bytes.
fn numbered(bytes: usize) -> impl Iterator<Item = String> + Send {
    (1..).map(move |number: u64| format!("{:x<bytes$}", format!("{number} ")))
}

fn number(line: &str) -> u64 {
    let first = line.split(' ').next().unwrap_or_default();
    first.parse().unwrap_or_else(|_| panic!("no number begins {line:?}"))
}

/// Starts `carom sub numbers` on each host, one after the other, and waits until it has joined.
fn subscribe(hosts: &[Host], args: &[&str]) -> Vec<Running> {
    let args = [&["sub", "numbers"], args].concat();
    let started = hosts.iter().map(|host| {
        let mut sub = host.start(&args);
        sub.said.wait_for("joined numbers");
        sub
    });
    started.collect()
}

/// Asserts that it ends well and has written the numbers from `first` to `last`, each once.
fn assert_wrote(sub: &mut Running, first: u64, last: u64) {
    sub.end_with(0);
    let mut wrote: Vec<u64> = sub.wrote.seen.iter().map(|line| number(line)).collect();
    wrote.sort_unstable();
    let missing = (first..=last).find(|wanted| wrote.binary_search(wanted).is_err());
    assert_eq!(missing, None, "{:#?}", sub.said.seen);
    assert_eq!(wrote.len() as u64, last + 1 - first, "lines came twice: {:#?}", sub.said.seen);
}

/// How `host` reaches the others, by their addresses, as `carom members` tells.
fn paths(host: &Host, args: &[&str]) -> BTreeMap<String, String> {
    let mut members = host.start(&[&["members", "--json"], args].concat());
    members.end_with(0);
    let report = members.json();
    let members = report["members"].as_array().expect("it is a list");
    let path = |member: &Value| {
        let endpoint = member["endpoint"].as_str().expect("it is text");
        let (address, _port) = endpoint.split_once(':').expect("an endpoint has a port");
        (address.to_owned(), member["path"].as_str().expect("it is text").to_owned())
    };
    members.iter().map(path).collect()
}

/// The paths to `hosts`, of which each is the one beside it.
fn expected(hosts: &[(&Host, &str)]) -> BTreeMap<String, String> {
    hosts.iter().map(|(host, path)| (host.address.clone(), (*path).to_owned())).collect()
}

fn all_counters(lab: &Lab) -> Vec<Counters> {
    lab.hosts().iter().map(Host::counters).collect()
}

/// Publishes `count` messages of [`PAYLOAD`] bytes to three members and waits until all is safe.
fn publish(host: &Host, count: usize, args: &[&str]) -> Running {
    let rate = ["pub", "numbers", "--rate", "20000/s", "--wait-for", "3", "--json"];
    let mut publisher = host.pipe(numbered(PAYLOAD).take(count), &[&rate, args].concat());
    publisher.end_with(0);
    let report = publisher.json();
    assert_eq!((&report["messages"], &report["safe"]), (&count.into(), &true.into()), "{report}");
    publisher
}

/// The bytes of payload that it published.
fn bytes(publisher: &Running) -> u64 {
    publisher.json()["bytes"].as_u64().expect("it is a count")
}

#[test]
fn hosts_find_each_other_by_multicast_and_lose_nothing_at_five_percent() {
    let test = "hosts find each other by multicast";
    let Some(lab) = Lab::new(test, 4, MTU) else { return };
    let [receivers @ .., sender] = lab.hosts() else { panic!("there are four") };
    let mut subs = subscribe(receivers, &["--count", "5000", "--loss", "5%"]);
    let multicast: Vec<_> = receivers.iter().map(|host| (host, "multicast")).collect();
    assert_eq!(paths(sender, &[]), expected(&multicast));
    let before = sender.counters();
    let bytes = bytes(&publish(sender, 5000, &[]));
    let after = sender.counters();
    subs.iter_mut().for_each(|sub| assert_wrote(sub, 1, 5000));
    // Every byte left by multicast, and none of it as a copy: repairs are less than one.
    assert!(after.since(&before, "IpExtOutMcastOctets") >= bytes);
    assert!(after.unicast_out(&before) < bytes);
}

#[test]
fn where_multicast_vanishes_members_found_by_a_seed_get_copies() {
    let test = "members found by a seed get copies";
    let Some(lab) = Lab::new(test, 4, MTU) else { return };
    lab.hosts().iter().for_each(Host::deafen);
    assert_all_by_unicast(&lab);
}

#[test]
fn where_a_firewall_refuses_multicast_members_found_by_a_seed_get_copies() {
    let test = "a firewall refuses multicast";
    let Some(lab) = Lab::new(test, 4, MTU) else { return };
    if let Err(why) = lab.hosts().iter().try_for_each(Host::forbid_multicast) {
        return lacking(test, &why);
    }
    let said = assert_all_by_unicast(&lab);
    let told = "note: multicast leads nowhere on eth0: members get unicast copies";
    let told = said.iter().filter(|line| *line == told).count();
    assert_eq!(told, 1, "{said:#?}");
}

/// Returns what the publisher said.
fn assert_all_by_unicast(lab: &Lab) -> Vec<String> {
    let [receivers @ .., sender] = lab.hosts() else { panic!("there are four") };
    let seed = ["--seed", &lab.at(1).address];
    let args = [&["--count", "5000", "--loss", "5%"], &seed[..]].concat();
    let mut subs = subscribe(receivers, &args);
    let unicast: Vec<_> = receivers.iter().map(|host| (host, "unicast")).collect();
    assert_eq!(paths(sender, &seed), expected(&unicast));
    let before = sender.counters();
    let publisher = publish(sender, 5000, &seed);
    let bytes = bytes(&publisher);
    let after = sender.counters();
    subs.iter_mut().for_each(|sub| assert_wrote(sub, 1, 5000));
    assert!(after.unicast_out(&before) >= 3 * bytes);
    assert!(after.since(&before, "IpExtOutMcastOctets") < bytes);
    publisher.said.seen.clone()
}

#[test]
fn only_the_member_whom_multicast_does_not_reach_gets_copies() {
    let test = "only the deaf member gets copies";
    let Some(lab) = Lab::new(test, 4, MTU) else { return };
    let [deaf, hearing @ .., sender] = lab.hosts() else { panic!("there are four") };
    deaf.deafen();
    let mut subs = subscribe(&lab.hosts()[..3], &["--count", "5000"]);
    let [a, b] = hearing else { panic!("there are two") };
    let wanted = expected(&[(deaf, "unicast"), (a, "multicast"), (b, "multicast")]);
    assert_eq!(paths(sender, &[]), wanted);
    let before = all_counters(&lab);
    let bytes = bytes(&publish(sender, 5000, &[]));
    let after = all_counters(&lab);
    subs.iter_mut().for_each(|sub| assert_wrote(sub, 1, 5000));
    let unicast_in = |index: usize| after[index].unicast_in(&before[index]);
    let multicast_in = |index: usize| after[index].since(&before[index], "IpExtInMcastOctets");
    assert!(unicast_in(0) >= bytes);
    // It hears its own hellos.
    assert!(multicast_in(0) < bytes / 10);
    for index in [1, 2] {
        assert!(multicast_in(index) >= bytes);
        // There are repairs, which are sent to one alone, but fewer than data packets.
        assert!(unicast_in(index) < bytes);
    }
}

#[test]
fn a_subscriber_that_is_killed_half_way_costs_the_others_nothing() {
    let test = "a subscriber is killed";
    let Some(lab) = Lab::new(test, 4, MTU) else { return };
    let [receivers @ .., sender] = lab.hosts() else { panic!("there are four") };
    let mut subs = subscribe(receivers, &["--loss", "5%"]);
    let mut victim = subs.remove(0);
    let args = ["pub", "numbers", "--rate", "5000/s", "--wait-for", "3"];
    let mut publisher = sender.pipe(numbered(20).take(10_000), &args);
    victim.wrote.wait_until("a fourth of all", |line| number(line) >= 2_500);
    victim.kill();
    publisher.end_with(0);
    let summary = publisher.said.seen.last().expect("it says how it went");
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
fn what_was_sent_to_nobody_but_a_subscriber_that_was_killed_is_not_safe() {
    let Some(lab) = Lab::new("the only subscriber is killed", 2, MTU) else { return };
    let [receiver, sender] = lab.hosts() else { panic!("there are two") };
    let mut victim = subscribe(std::slice::from_ref(receiver), &[]).remove(0);
    let args = ["pub", "numbers", "--rate", "5000/s", "--json"];
    let mut publisher = sender.pipe(numbered(20).take(10_000), &args);
    victim.wrote.wait_until("a fourth of all", |line| number(line) >= 2_500);
    victim.kill();
    publisher.end_with(1);
    let report = publisher.json();
    assert_eq!((&report["safe"], &report["members"]), (&false.into(), &0.into()), "{report}");
}

#[test]
fn a_subscriber_that_joins_half_way_gets_everything_from_then_on() {
    let test = "a subscriber joins half-way";
    let Some(lab) = Lab::new(test, 3, MTU) else { return };
    let [early, late, sender] = lab.hosts() else { panic!("there are three") };
    let mut first = subscribe(std::slice::from_ref(early), &["--loss", "5%"]).remove(0);
    let is_enough = Arc::new(AtomicBool::new(false));
    let enough = Arc::clone(&is_enough);
    // Lines as long as these fill the pipe soon: what is written is not far ahead of what is sent.
    let lines = numbered(PAYLOAD).take_while(move |_| !enough.load(Ordering::SeqCst));
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

/// Waits until as many lines have come as there are from the least to `last`: they may come out of
/// order. Returns the least.
fn read_to_the_last(sub: &mut Running, last: u64) -> u64 {
    let seen = &sub.wrote.seen;
    let mut came = seen.len() as u64;
    let mut least = seen.iter().map(|line| number(line)).min().unwrap_or(last);
    if came <= last - least {
        sub.wrote.wait_until("everything up to the last line", |line| {
            came += 1;
            least = least.min(number(line));
            came > last - least
        });
    }
    least
}

/// Asserts that the last two lines are a cause with `cause` in it and a fix, and the code is 2.
fn assert_refused(mut running: Running, cause: &str) {
    running.end_with(2);
    let [.., error, fix] = &running.said.seen[..] else { panic!("{:#?}", running.said.seen) };
    assert!(error.starts_with("error: ") && error.contains(cause), "{:#?}", running.said.seen);
    assert!(fix.starts_with("fix: ") && fix.len() > "fix: ".len(), "{:#?}", running.said.seen);
}

#[test]
fn seeds_that_do_not_answer_and_interfaces_that_are_not_there_are_refused() {
    let test = "seeds that do not answer";
    let Some(lab) = Lab::new(test, 2, MTU) else { return };
    // Nobody has the one address; the host of the other one refuses the datagrams.
    let seeds = [lab.nobody(), lab.at(2).address.clone()];
    let verbs: [&[&str]; 3] = [&["sub", "x"], &["pub", "x"], &["members"]];
    let mut cases = Vec::new();
    for (verb, seed) in verbs.iter().flat_map(|verb| seeds.iter().map(move |seed| (verb, seed))) {
        // They would find each other by multicast, and do without the seed.
        let port = (7500 + cases.len()).to_string();
        let args = [verb, &["--seed", seed, "--multicast-port", &port][..]].concat();
        cases.push((lab.at(1).start(&args), seed));
    }
    for verb in verbs {
        let running = lab.at(1).start(&[verb, &["--interface", "eth7"]].concat());
        assert_refused(running, "eth7");
    }
    cases.into_iter().for_each(|(running, seed)| assert_refused(running, seed));
}

/// The level of each check of `carom doctor HOST`; each that is not ok has a fix.
fn examine(host: &Host, other: &Host, code: i32) -> BTreeMap<String, String> {
    let mut doctor = host.start(&["doctor", &other.address, "--json"]);
    doctor.end_with(code);
    let report = doctor.json();
    let findings = report["findings"].as_array().expect("it is a list");
    let text = |finding: &Value, field: &str| finding[field].as_str().map(str::to_owned);
    for finding in findings {
        let has_fix = text(finding, "fix").is_some_and(|fix| !fix.is_empty());
        assert_eq!(has_fix, finding["level"] != "ok", "{report}");
    }
    let level = |finding| text(finding, "check").zip(text(finding, "level"));
    findings.iter().map(|finding| level(finding).expect("it has both")).collect()
}

fn levels(levels: [(&str, &str); 4]) -> BTreeMap<String, String> {
    levels.into_iter().map(|(check, level)| (check.to_owned(), level.to_owned())).collect()
}

#[test]
fn two_doctors_tell_which_way_multicast_does_not_go() {
    let Some(lab) = Lab::new("two doctors", 2, MTU) else { return };
    let [asked, asking] = lab.hosts() else { panic!("there are two") };
    let mut listener = asked.start(&["doctor", "--listen"]);
    listener.said.wait_for("listening on UDP port 7499, for multicast on");
    let (size, unicast) = (("datagram size", "ok"), ("unicast", "ok"));
    let all = levels([size, unicast, ("multicast to", "ok"), ("multicast from", "ok")]);
    assert_eq!(examine(asking, asked, 0), all);
    listener.wrote.wait_until("both ways", |line| line.contains("its multicast arrives here"));
    asked.deafen();
    let one_way = levels([size, unicast, ("multicast to", "bad"), ("multicast from", "ok")]);
    assert_eq!(examine(asking, asked, 1), one_way);
    asking.deafen();
    let none = levels([size, unicast, ("multicast to", "bad"), ("multicast from", "bad")]);
    assert_eq!(examine(asking, asked, 1), none);
    listener.interrupt();
    listener.end_with(0);
    assert!(listener.wrote.seen.iter().any(|line| line.contains("its unicast arrives here")));
    // Now nobody answers.
    assert_eq!(examine(asking, asked, 1), [("unicast".to_owned(), "bad".to_owned())].into());
}

/// Runs the membership service on this host, where nodes find it at the usual port.
fn serve(host: &Host, more: &[&str]) -> (Running, TempDir) {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let store = folder.path().to_str().expect("it has a plain name");
    let mut service = host.start(&[&["control", "--store", store, "--no-http"], more].concat());
    service.said.wait_for(&format!("serves at {}:7402", host.address));
    (service, folder)
}

#[test]
fn on_one_host_nothing_has_to_be_configured() {
    let Some(lab) = Lab::new("one host without configuration", 1, MTU) else { return };
    let host = lab.at(1);
    let mut sub = host.start(&["sub", "numbers", "--count", "1000"]);
    sub.said.wait_for("joined numbers");
    host.pipe(numbered(20).take(1000), &["pub", "numbers"]).end_with(0);
    assert_wrote(&mut sub, 1, 1000);
}

#[test]
fn traffic_goes_on_while_the_host_of_the_service_is_cut_off() {
    let test = "the host of the service is cut off";
    let Some(lab) = Lab::new(test, 3, MTU) else { return };
    let [serving, receiver, sender] = lab.hosts() else { panic!("there are three") };
    let (_service, _folder) = serve(serving, &[]);
    let flags = ["--control", &serving.address, "--path", "unicast"];
    let args = [&["sub", "numbers", "--loss", "5%"], &flags[..]].concat();
    let mut sub = receiver.start(&args);
    sub.said.wait_for("joined numbers");
    let is_enough = Arc::new(AtomicBool::new(false));
    let enough = Arc::clone(&is_enough);
    let lines = numbered(PAYLOAD).take_while(move |_| !enough.load(Ordering::SeqCst));
    let args = [&["pub", "numbers", "--rate", "1000/s", "--json"], &flags[..]].concat();
    let mut publisher = sender.pipe(lines, &args);
    sub.wrote.wait_until("some hundred", |line| number(line) >= 500);
    serving.unplug();
    // By then it is past the leases, too.
    sub.said.wait_for("the membership service is away");
    publisher.said.wait_for("the membership service is away");
    let last = sub.wrote.seen.iter().map(|line| number(line)).max().unwrap_or_default();
    sub.wrote.wait_until("more meanwhile", |line| number(line) >= last + 2_000);
    serving.plug();
    sub.said.wait_for("the membership service is back");
    publisher.said.wait_for("the membership service is back");
    is_enough.store(true, Ordering::SeqCst);
    publisher.end_with(0);
    let report = publisher.json();
    assert_eq!((&report["safe"], &report["members"]), (&true.into(), &1.into()), "{report}");
    let said = &publisher.said.seen;
    assert!(!said.iter().any(|line| line.contains("failed")), "{said:#?}");
    let count = report["messages"].as_u64().expect("it is a count");
    assert_eq!(read_to_the_last(&mut sub, count), 1);
    sub.interrupt();
    assert_wrote(&mut sub, 1, count);
}

#[test]
fn with_partial_views_losses_are_repaired_and_views_are_refreshed() {
    let Some(lab) = Lab::new("partial views", 9, MTU) else { return };
    let [serving, receivers @ .., sender] = lab.hosts() else { panic!("there are nine") };
    let (_service, _folder) = serve(serving, &["--view-size", "5"]);
    let flags = ["--control", &serving.address];
    let mut witness = serving.start(&[&["sub", "numbers", "--json"], &flags[..]].concat());
    witness.said.wait_for("joined numbers");
    let mut subs = subscribe(receivers, &[&["--json", "--loss", "5%"], &flags[..]].concat());
    let is_enough = Arc::new(AtomicBool::new(false));
    let enough = Arc::clone(&is_enough);
    // Who is not in the publisher's view notices a loss by what comes after it.
    let lines = numbered(PAYLOAD).take_while(move |_| !enough.load(Ordering::SeqCst));
    let args = [&["pub", "numbers", "--rate", "1000/s", "--wait-for", "5"], &flags[..]].concat();
    let mut publisher = sender.pipe(lines, &args);
    let (mut repaired, mut lost) = (0, 0);
    for sub in &mut subs {
        let (by_sub, not_by_sub) = read_or_lost(sub, 2000);
        (repaired, lost) = (repaired + by_sub, lost + not_by_sub);
    }
    is_enough.store(true, Ordering::SeqCst);
    // A member that is not shown the publisher cannot confirm what it has.
    publisher.end();
    for sub in &mut subs {
        sub.interrupt();
        sub.end();
    }
    // Whatever no repair brought back the publisher was asked for, in the view or not.
    assert!(lost == 0 && repaired > 300, "{repaired} repaired, {lost} lost");
    witness.interrupt();
    witness.end_with(0);
    assert_partial(&witness.wrote.seen, 5);
}

/// Waits until each of the first messages has come or was told as lost. Returns how many of all
/// came by repair or retransmission, and how many were lost.
fn read_or_lost(sub: &mut Running, last: u64) -> (u64, u64) {
    let (mut settled, mut repaired, mut lost) = (BTreeSet::new(), 0, 0);
    sub.wrote.wait_until("every message, or that it is lost", |line| {
        let event: Value = serde_json::from_str(line).expect("each line is JSON");
        let seqno = |field: &str| event[field].as_u64().expect("it is a number");
        match event["event"].as_str() {
            Some("message") => {
                assert!(settled.insert(seqno("seqno")), "it came twice: {event}");
                repaired += u64::from(event["how"] != "direct");
            }
            Some("lost") => {
                settled.extend(seqno("first")..=seqno("last"));
                lost += 1 + seqno("last") - seqno("first");
            }
            _ => {}
        }
        // Where the first ones are lost the stream begins with the next one: only the publisher
        // could tell, and does not know of those that it is not shown.
        let first = settled.first().copied().unwrap_or(1);
        settled.range(first..=last).count() as u64 == last + 1 - first
    });
    assert!(settled.first() < Some(&100), "it began with {:?}", settled.first());
    (repaired, lost)
}

/// Asserts of a node's events that it never saw more than `size` members, and that one who went was
/// replaced by another as long as there was one.
fn assert_partial(events: &[String], size: usize) {
    let mut shown = BTreeSet::new();
    let mut all = BTreeSet::new();
    for event in events.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let Some(node) = event["node"].as_str().map(str::to_owned) else { continue };
        match event["change"].as_str() {
            Some("joined") => assert!(all.insert(node.clone()) | shown.insert(node), "{event}"),
            _ => assert!(shown.remove(&node), "{event}"),
        }
        assert!(shown.len() <= size, "{shown:?}");
    }
    assert!(all.len() > size, "nobody took the place of those who went: {all:?}");
}

#[test]
fn the_packets_of_large_messages_and_their_repairs_are_never_fragmented() {
    assert_never_fragmented("large messages", MTU);
}

#[test]
fn a_smaller_mtu_makes_for_smaller_packets_instead_of_fragments() {
    assert_never_fragmented("a smaller MTU", 1000);
}

fn assert_never_fragmented(test: &str, mtu: u32) {
    let Some(lab) = Lab::new(test, 3, mtu) else { return };
    let [receivers @ .., sender] = lab.hosts() else { panic!("there are three") };
    let mut subs = subscribe(receivers, &["--count", "2000", "--loss", "5%"]);
    // Their packets are as large as there are.
    let args = ["pub", "numbers", "--rate", "2000/s", "--wait-for", "2"];
    let mut publisher = sender.pipe(numbered(4000).take(2000), &args);
    publisher.end_with(0);
    subs.iter_mut().for_each(|sub| assert_wrote(sub, 1, 2000));
    for counters in all_counters(&lab) {
        for name in ["IpFragCreates", "IpFragFails", "IpReasmReqds", "UdpSndbufErrors"] {
            assert_eq!(counters.of(name), 0, "{name}");
        }
    }
    // The counters do count: a program that does not look after it is fragmented.
    let send = format!("printf %4000s > /dev/udp/{}/9", receivers[0].address);
    let sent = sender.command("bash", &["-c", &send]).status().expect("ip was there before");
    assert!(sent.success());
    assert!(sender.counters().of("IpFragCreates") > 0);
}

#[test]
fn a_buffer_that_is_not_granted_is_told_once_with_the_sysctl_that_helps() {
    let test = "a buffer that is not granted";
    let Some(lab) = Lab::new(test, 1, MTU) else { return };
    let host = lab.at(1);
    // Newer kernels may let a namespace have its own limit; others tell that of the machine.
    let lower = "echo 65536 > /proc/sys/net/core/rmem_max; cat /proc/sys/net/core/rmem_max";
    let output = host.command("sh", &["-c", lower]).output().expect("ip was there before");
    let text = String::from_utf8_lossy(&output.stdout);
    let Ok(limit) = text.trim().parse::<usize>() else {
        return skipped(test, "the kernel tells no limit of buffers within a namespace");
    };
    let mut members = host.start_unprivileged(&["members"]);
    members.end_with(0);
    let said = &members.said.seen;
    let told: Vec<usize> =
        (0..said.len()).filter(|&at| said[at].starts_with("note: receive buffer: ")).collect();
    if limit >= RECEIVE_BYTES {
        assert!(told.is_empty(), "all is granted: {said:#?}");
        return skipped(test, &format!("the machine grants {limit} bytes, which is enough"));
    }
    let [told] = told[..] else { panic!("it is to be told once: {said:#?}") };
    let granted = format!("{} KiB granted of {} KiB", limit / 1024, RECEIVE_BYTES / 1024);
    assert!(said[told].contains(&granted), "{said:#?}");
    let fix = format!("fix: sysctl -w net.core.rmem_max={RECEIVE_BYTES}");
    assert!(said.get(told + 1).is_some_and(|line| line.starts_with(&fix)), "{said:#?}");
}

/// What a node asks for.
const RECEIVE_BYTES: usize = 4 << 20;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::atomic::Ordering;

use serde_json::Value;
use tempfile::TempDir;

use crate::lab::{Cut, Host, Lab, RunCarom as _, Running, build_lab, permitted};
use crate::{
    MTU, all_counters, assert_wrote, lines_until_enough, number, numbered, publish, subscribe,
};

#[test]
fn hosts_meet_by_multicast_and_lose_nothing_at_5_percent() {
    let Some(lab) = build_lab(4, MTU) else { return };
    let [receivers @ .., sender] = lab.hosts() else { panic!("there are four") };
    let mut subs = subscribe(receivers, &["--count", "5000", "--loss", "5%"]);
    let multicast: Vec<_> = receivers.iter().map(|host| (host, "multicast")).collect();
    assert_eq!(paths(sender, &[]), expected(&multicast));
    let before = sender.counters();
    let bytes = bytes(&publish(sender, 5000, &[]));
    let after = sender.counters();
    subs.iter_mut().for_each(|sub| assert_wrote(sub, 1, 5000));
    // Every byte was multicast, and none sent as a copy: repairs are smaller than the data.
    assert!(after.since(&before, "IpExtOutMcastOctets") >= bytes);
    assert!(after.unicast_out(&before) < bytes);
}

#[test]
fn host_with_a_changed_address_continues_and_reports_it() {
    let Some(lab) = build_lab(2, MTU) else { return };
    assert_goes_on_elsewhere(&lab, &[]);
}

#[test]
fn host_with_a_changed_address_is_met_through_the_service() {
    let Some(lab) = build_lab(2, MTU) else { return };
    let dir = TempDir::new().expect("a directory");
    let store = dir.path().to_str().expect("a UTF-8 path");
    let mut registry = lab.host(1).start(&["registry", "--store", store]);
    registry.said.wait_for("serving at");
    assert_goes_on_elsewhere(&lab, &["--registry", &lab.host(1).address().to_string()]);
}

fn assert_goes_on_elsewhere(lab: &Lab, network: &[&str]) {
    let [still, moving] = lab.hosts() else { panic!("there are two") };
    let mut subs = [still, moving].map(|host| {
        let mut sub = host.start(&[&["sub", "numbers"], network].concat());
        sub.said.wait_for("joined numbers");
        sub
    });
    let (lines, is_enough) = lines_until_enough();
    let args = ["pub", "numbers", "--wait-for", "2", "--rate", "500/s"];
    let mut publisher = moving.pipe(lines, &[&args[..], network].concat());
    let begun = |sub: &mut Running| sub.wrote.wait_until("the first lines", |it| number(it) > 100);
    subs.iter_mut().for_each(|sub| _ = begun(sub));
    moving.set_address(Ipv4Addr::new(10, 77, 1, 99)).expect("the host exists");
    let told = publisher.said.wait_for("note: the address of eth0 has changed from 10.77.");
    assert!(told.ends_with(".99"), "{told}");
    subs[1].said.wait_for("note: the address of eth0 has changed from 10.77.");
    // From here on, everything that arrives was sent from the new address.
    let last = subs[0].wrote.seen.iter().map(|line| number(line)).max().expect("lines arrived");
    for sub in &mut subs {
        sub.wrote.wait_until("messages sent after the change", |it| number(it) > last + 5000);
    }
    is_enough.store(true, Ordering::SeqCst);
    publisher.end();
    let back = ["the other way".to_owned()].into_iter();
    let args = [&["pub", "numbers", "--wait-for", "2"], network].concat();
    still.pipe(back, &args).end_with(0);
    subs[1].wrote.wait_for("the other way");
}

#[test]
fn on_one_host_nothing_has_to_be_configured() {
    let Some(lab) = build_lab(1, MTU) else { return };
    let host = lab.host(1);
    let mut sub = host.start(&["sub", "numbers", "--count", "1000"]);
    sub.said.wait_for("joined numbers");
    host.pipe(numbered(20).take(1000), &["pub", "numbers"]).end_with(0);
    assert_wrote(&mut sub, 1, 1000);
}

#[test]
fn where_multicast_vanishes_members_found_by_a_seed_get_copies() {
    let Some(lab) = build_lab(4, MTU) else { return };
    for host in lab.hosts() {
        let Some(()) = permitted(lab.cut(&Cut::Multicast(host.number()))) else { return };
    }
    assert_all_by_unicast(&lab);
}

#[test]
fn members_behind_a_multicast_firewall_get_copies() {
    let Some(lab) = build_lab(4, MTU) else { return };
    for host in lab.hosts() {
        let rules = "add table ip carom
            add chain ip carom out { type filter hook output priority 0; policy accept; }
            add rule ip carom out ip daddr 239.0.0.0/8 drop";
        let Some(()) = permitted(host.namespace().nft(rules)) else { return };
    }
    let said = assert_all_by_unicast(&lab);
    let told = "note: multicast is unreachable on eth0: falling back to unicast";
    let told = said.iter().filter(|line| *line == told).count();
    assert_eq!(told, 1, "{said:#?}");
}

fn assert_all_by_unicast(lab: &Lab) -> Vec<String> {
    let [receivers @ .., sender] = lab.hosts() else { panic!("there are four") };
    let seed = ["--seed", &lab.host(1).address().to_string()];
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
fn only_the_member_without_multicast_gets_copies() {
    let Some(lab) = build_lab(4, MTU) else { return };
    let [deaf, hearing @ .., sender] = lab.hosts() else { panic!("there are four") };
    let Some(()) = permitted(lab.cut(&Cut::Multicast(deaf.number()))) else { return };
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
    // The host receives its own hellos.
    assert!(multicast_in(0) < bytes / 10);
    for index in [1, 2] {
        assert!(multicast_in(index) >= bytes);
        // Repairs are sent by unicast, but they have fewer bytes than the data packets.
        assert!(unicast_in(index) < bytes);
    }
}

fn paths(host: &Host, args: &[&str]) -> BTreeMap<String, String> {
    let members = host.start(&[&["members", "--json"], args].concat()).ended_with(0);
    let report = members.json();
    let members = report["members"].as_array().expect("it is a list");
    let path = |member: &Value| {
        let endpoint = member["endpoint"].as_str().expect("it is text");
        let (address, _port) = endpoint.split_once(':').expect("an endpoint has a port");
        (address.to_owned(), member["path"].as_str().expect("it is text").to_owned())
    };
    members.iter().map(path).collect()
}

fn expected(hosts: &[(&Host, &str)]) -> BTreeMap<String, String> {
    hosts.iter().map(|(host, path)| (host.address().to_string(), (*path).to_owned())).collect()
}

fn bytes(publisher: &Running) -> u64 {
    publisher.json()["bytes"].as_u64().expect("it is a count")
}

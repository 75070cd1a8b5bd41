use carom_proto::GroupId;
use serde_json::Value;

use crate::ports::free_port;
use crate::process::{Running, run, start};
use crate::service::{Node, Service, assert_refused};

fn members(service: &Service, more: &[&str]) -> Running {
    run(&[&["members", "--registry", &service.address], more].concat(), 0)
}

fn ids(report: &Value) -> Vec<&str> {
    let members = report["members"].as_array().expect("a list");
    members.iter().map(|member| member["node"].as_str().expect("text")).collect()
}

#[test]
fn outsider_sees_members_of_one_group_or_of_all() {
    let service = Service::start(&[]);
    let (a, b) = (service.node("numbers", &[]), service.node("letters", &[]));
    let mut both = [&*a.id, &b.id];
    both.sort_unstable();
    let all = members(&service, &["--json"]).json();
    assert_eq!(ids(&all), both, "{all}");
    let letters = GroupId::of_name("letters").to_string();
    let of_b = all["members"].as_array().and_then(|it| it.iter().find(|it| it["node"] == *b.id));
    assert_eq!(of_b.expect("the member is listed")["groups"], Value::from(vec![letters]));
    assert_eq!((&all["away"], &all["group"]), (&false.into(), &Value::Null));
    let one = members(&service, &["numbers", "--json"]).json();
    assert_eq!((ids(&one), &one["group"]), (vec![&*a.id], &"numbers".into()));
    let table = members(&service, &["letters"]).wrote.seen.join("\n");
    assert!(table.contains(&b.id) && !table.contains(&a.id), "{table}");
    let nobody = members(&service, &["figures"]).wrote.seen.join("\n");
    assert!(nobody.contains("the group has no members"), "{nobody}");
    // The observer itself was in no group.
    assert_eq!(service.status()["nodes"].as_array().map(Vec::len), Some(2));
}

#[test]
fn watcher_sees_each_change_and_the_state_of_the_service() {
    let mut service = Service::start(&["--detection", "1s"]);
    let args = ["members", "numbers", "--registry", &service.address, "--watch"];
    let mut told = start(&args);
    let mut json = start(&[&args[..], &["--json"]].concat());
    told.wrote.wait_for("the group has no members");
    json.wrote.wait_for("\"members\":[]");
    let _elsewhere = service.node("letters", &[]);
    let mut stays = service.node("numbers", &[]);
    let leaves = service.node("numbers", &[]);
    let mut fails = service.node("numbers", &[]);
    for node in [&stays, &leaves, &fails] {
        told.wrote.wait_until("who joins", |line| is_change(line, "+", node, "joined"));
    }
    leaves.running.interrupt();
    told.wrote.wait_until("who leaves", |line| is_change(line, "-", &leaves, "left"));
    fails.running.kill();
    told.wrote.wait_until("who fails", |line| is_change(line, "-", &fails, "failed"));
    json.wrote.wait_for("\"change\":\"failed\"");
    service.running.kill();
    told.said.wait_for("the registry is unreachable");
    let away = json.wrote.wait_for("\"away\":true");
    assert!(away.contains(&stays.id), "the last members are shown: {away}");
    service.start_again(&["--detection", "1s"]);
    told.said.wait_for("the registry is reachable again");
    json.wrote.wait_for("\"away\":false");
    stays.running.stop();
    let line = told.wrote.wait_for(&stays.id);
    assert!(is_change(&line, "-", &stays, "left"), "{line}");
    told.stop();
}

fn is_change(line: &str, sign: &str, node: &Node, how: &str) -> bool {
    line.starts_with(&format!("{sign} {} ", node.id)) && line.ends_with(&format!("{how} numbers"))
}

#[test]
fn members_of_an_absent_or_other_service_are_refused() {
    let service = Service::start(&["--cluster", "lab"]);
    let args = ["members", "--registry", &service.address];
    assert_refused(&args, "belongs to cluster \"lab\"");
    let free = format!("127.0.0.1:{}", free_port());
    assert_refused(&["members", "--registry", &free], &free);
    // The service does not know any locks.
    let args = ["members", "numbers", "--lock", "nightly", "--registry", &free];
    assert_refused(&args, "--registry");
}

//! Tests `carom registry --etcd` with a real etcd, killed and stopped processes, and library nodes.
#![cfg(feature = "etcd")]

mod churn;
mod cluster;
mod full;
mod joins;
mod nodes;
#[path = "../lab/ports.rs"]
mod ports;
#[path = "../lab/process.rs"]
mod process;
#[path = "../lab/raw.rs"]
mod raw;
mod relay;
mod service;
#[path = "../lab/skipping.rs"]
mod skipping;
mod trees;

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::json;

use crate::cluster::{Certificates, Etcd};
use crate::nodes::{Host, await_views};
use crate::process::{PATIENCE, Running};
use crate::relay::Relay;
use crate::service::{Registry, command};

const PARTITIONS: usize = 16;

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let give_up = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < give_up, "timed out waiting for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn await_shares(one: &Registry, other: &Registry) {
    wait_until("a share of partitions at both", || {
        let (one, other) = (one.owned(), other.owned());
        one > 0 && other > 0 && one + other == PARTITIONS
    });
}

#[test]
fn silent_etcd_is_an_error_with_its_addresses_and_code_2() {
    let refused =
        Running::start(command("http://127.0.0.1:1,http://127.0.0.1:2", &[])).ended_with(2);
    let said = &refused.said.seen;
    assert_eq!(said.len(), 2, "{said:#?}");
    assert!(
        said[0].contains("etcd does not answer at http://127.0.0.1:1,http://127.0.0.1:2"),
        "{said:#?}"
    );
    assert!(said[1].starts_with("fix: start etcd"), "{said:#?}");
}

#[test]
fn other_partition_count_is_refused_and_other_name_is_separate() {
    let Some(etcd) = Etcd::start(1) else { return };
    let first = Registry::start(&etcd.urls());
    first.await_owned(PARTITIONS);
    let contradicting = Running::start(command(&etcd.urls(), &["--partitions", "8"])).ended_with(2);
    let said = contradicting.said.seen.join("\n");
    assert!(said.contains("with 16 partitions") && said.contains("with 8 partitions"), "{said}");
    let mut other =
        Running::start(command(&etcd.urls(), &["--cluster", "a/b", "--partitions", "8"]));
    other.wrote.wait_for("address");
    other.stop();
    assert_eq!(first.owned(), PARTITIONS);
}

#[test]
fn partitions_move_to_new_and_from_stopped_processes() {
    let Some(etcd) = Etcd::start(1) else { return };
    let first = Registry::start(&etcd.urls());
    first.await_owned(PARTITIONS);
    let mut hosts = [(); 2].map(|()| Host::start(&[&first.address]));
    for host in &mut hosts {
        (0..PARTITIONS).for_each(|number| host.join(&format!("group{number}")));
    }
    await_views(&hosts);

    let mut second = Registry::start(&etcd.urls());
    await_shares(&first, &second);
    assert!(first.counter("store_gifts") > 0, "partitions were handed over, not left to expire");
    for registry in [&first, &second] {
        nodes::await_service(registry, &hosts, std::iter::empty());
    }
    await_views(&hosts);

    second.running.stop();
    first.await_owned(PARTITIONS);

    let mut third = Registry::start(&etcd.urls());
    await_shares(&first, &third);
    third.running.kill();
    first.await_owned(PARTITIONS);
    hosts[0].leave("group3");
    hosts[1].join("late");
    hosts[0].join("late");
    await_views(&hosts);
}

#[test]
fn process_paused_beyond_its_lease_is_deposed_and_returns() {
    let Some(etcd) = Etcd::start(1) else { return };
    let (first, second) = (Registry::start(&etcd.urls()), Registry::start(&etcd.urls()));
    await_shares(&first, &second);
    let mut hosts = [(); 2].map(|()| Host::start(&[&first.address, &second.address]));
    for host in &mut hosts {
        (0..PARTITIONS).for_each(|number| host.join(&format!("group{number}")));
    }
    first.running.signal(Signal::SIGSTOP);
    second.await_owned(PARTITIONS);
    for host in &mut hosts {
        (0..4).for_each(|number| host.leave(&format!("group{number}")));
        (0..PARTITIONS).for_each(|number| host.join(&format!("more{number}")));
    }
    first.running.signal(Signal::SIGCONT);
    await_shares(&first, &second);
    assert!(first.counter("store_lapses") > 0, "the process noticed by its own clock");
    hosts[0].join("after");
    hosts[1].join("after");
    await_views(&hosts);
    for registry in [&first, &second] {
        nodes::await_service(registry, &hosts, (0..PARTITIONS).map(|it| format!("group{it}")));
    }
}

#[test]
fn views_stay_while_etcd_is_away_and_change_when_it_is_back() {
    let Some(mut etcd) = Etcd::start(1) else { return };
    let mut registry = Registry::start(&etcd.urls());
    registry.await_owned(PARTITIONS);
    let mut hosts = [(); 2].map(|()| Host::start(&[&registry.address]));
    hosts.iter_mut().for_each(|host| host.join("prices"));
    await_views(&hosts);
    etcd.kill(0);
    let told = registry.running.said.wait_for("store unavailable");
    assert!(told.contains(&etcd.urls()), "{told}");
    let status = registry.status().expect("status is served without etcd");
    assert_eq!(status["store"]["registered"], false, "{status}");
    assert_eq!(registry.owned(), 0);
    await_views(&hosts);

    etcd.launch(0);
    registry.running.said.wait_for("store available again");
    hosts.iter_mut().for_each(|host| host.join("again"));
    await_views(&hosts);
    nodes::await_service(&registry, &hosts, std::iter::empty());
    registry.running.stop();
}

#[test]
fn damaged_etcd_store_is_reported_and_served_once_repaired() {
    let Some(etcd) = Etcd::start(1) else { return };
    // Base64 of "/carom/x/commit/0003" and "no record".
    let key = "L2Nhcm9tL3gvY29tbWl0LzAwMDM=";
    etcd.ask("kv/put", &json!({ "key": key, "value": "bm8gcmVjb3Jk" }));
    let mut registry = Registry::start_with(&etcd.urls(), &["--cluster", "x"]);
    let told = registry.running.said.wait_for("store unavailable: cannot read");
    assert!(told.contains("damaged: the last commit of partition 3"), "{told}");
    let status = registry.status().expect("it answers");
    assert_eq!(status["store"]["registered"], false, "{status}");
    etcd.ask("kv/deleterange", &json!({ "key": key }));
    registry.running.said.wait_for("store available again");
    registry.await_owned(PARTITIONS);
}

#[test]
fn process_stopped_at_a_hung_etcd_releases_its_partitions() {
    let Some(etcd) = Etcd::start(1) else { return };
    let relay = Relay::start(&etcd.urls());
    let mut first = Registry::start_leased_for_long(&format!("{},{}", relay.url(), etcd.urls()));
    first.await_owned(PARTITIONS);
    relay.hang();
    first.running.stop();
    let second = Registry::start(&etcd.urls());
    second.await_owned(PARTITIONS);
}

#[test]
fn etcd_password_is_used_and_anonymous_access_is_refused() {
    let Some(mut etcd) = Etcd::start(1) else { return };
    let root = json!({ "name": "root", "password": "secret", "user": "root", "role": "root" });
    for what in ["auth/user/add", "auth/role/add", "auth/user/grant", "auth/enable"] {
        let fields: &[&str] = match what {
            "auth/user/add" => &["name", "password"],
            "auth/role/add" => &["name"],
            "auth/user/grant" => &["user", "role"],
            _ => &[],
        };
        let question = fields.iter().map(|field| (field.to_string(), root[*field].clone()));
        etcd.ask(what, &question.collect::<serde_json::Map<_, _>>().into());
    }
    let nameless = Running::start(command(&etcd.urls(), &[])).ended_with(2);
    assert!(nameless.said.seen[0].contains("rejected"), "{:#?}", nameless.said.seen);
    let folder = tempfile::tempdir().expect("a folder for the test");
    let file = folder.path().join("password");
    std::fs::write(&file, "secret\n").expect("the directory belongs to the test");
    let file = file.to_str().expect("a UTF-8 path");
    let flags = ["--etcd-user", "root", "--etcd-password-file", file];
    let mut named = Registry::start_with(&etcd.urls(), &flags);
    named.await_owned(PARTITIONS);
    // After a restart, etcd no longer knows the tokens that it has issued.
    etcd.kill(0);
    etcd.launch(0);
    etcd.await_health(0);
    let other = Registry::start_with(&etcd.urls(), &flags);
    await_shares(&named, &other);
    named.running.stop();
}

#[test]
fn etcd_over_tls_requires_the_ca_and_client_certificates() {
    let Some(certificates) = Certificates::make() else { return };
    let Certificates { ca, certificate, key, .. } = &certificates;
    let (ca, certificate, key) = (ca.clone(), certificate.clone(), key.clone());
    let Some(etcd) = Etcd::start_secure(certificates) else { return };
    let trusting = Running::start(command(&etcd.urls(), &[])).ended_with(2);
    assert!(trusting.said.seen[0].contains("--etcd-ca"), "{:#?}", trusting.said.seen);
    let flags = ["--etcd-ca", &ca, "--etcd-cert", &certificate, "--etcd-key", &key];
    let registry = Registry::start_with(&etcd.urls(), &flags);
    registry.await_owned(PARTITIONS);
}

//! Tests nodes that come and go while a member of etcd and a registry process are killed.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use carom_proto::Rng;

use super::cluster::Etcd;
use super::nodes::{Host, await_service, await_views};
use super::process::{Running, start};
use super::service::Registry;
use super::wait_until;

const GROUPS: usize = 32;
const WORKERS: usize = 6;
/// Number of rounds of each worker. In each round, it joins up to six groups, leaves some, and
/// sometimes closes its node.
const ROUNDS: usize = 30;

/// Runs one node after another. Returns the last one.
fn churn(seed: u64, registries: [&str; 2], progress: &AtomicUsize) -> Host {
    let mut rng = Rng::new(seed);
    let mut host = Host::start(&registries);
    for _ in 0..ROUNDS {
        for _ in 0..rng.below(6) + 1 {
            host.join(&group(rng.below(GROUPS)));
        }
        let leaving: Vec<String> = host.groups().filter(|_| rng.below(3) == 0).cloned().collect();
        leaving.iter().for_each(|name| host.leave(name));
        if rng.below(6) == 0 {
            host.close();
            host = Host::start(&registries);
        }
        progress.fetch_add(1, Ordering::SeqCst);
    }
    (0..4).for_each(|_| host.join(&group(rng.below(GROUPS))));
    host
}

fn group(number: usize) -> String {
    format!("group{number}")
}

/// Starts a member. Like [`Host::join`], it repeats a join that the registry did not answer: etcd
/// may need several elections after a member has died.
fn mortal(registries: [&str; 2], number: usize) -> Running {
    let group = group(number);
    let sub = ["sub", &group, "--interface", "127.0.0.1", "--port", "0"];
    let [one, other] = registries;
    let sub = [&sub[..], &["--registry", one, "--registry", other]].concat();
    let mut joined = None;
    wait_until(&format!("a member of {group}"), || {
        let mut running = start(&sub);
        let what = "a line on its join";
        let line = running
            .said
            .wait_until(what, |line| line.contains("joined") || line.contains(UNANSWERED));
        joined = (!line.contains(UNANSWERED)).then_some(running);
        joined.is_some()
    });
    joined.expect("it has joined")
}

const UNANSWERED: &str = "no answer from the registry";

#[test]
fn views_match_acknowledged_changes_after_etcd_and_registry_die() {
    let Some(mut etcd) = Etcd::start(3) else { return };
    let (mut first, second) = (Registry::start(&etcd.urls()), Registry::start(&etcd.urls()));
    super::await_shares(&first, &second);
    let addresses = [first.address.clone(), second.address.clone()];
    let registries = [addresses[0].as_str(), addresses[1].as_str()];
    let progress = AtomicUsize::new(0);
    let await_share = |done: usize| {
        let rounds = WORKERS * ROUNDS * done / 6;
        wait_until(&format!("{rounds} rounds"), || progress.load(Ordering::SeqCst) >= rounds);
    };
    let mut again = None;
    let hosts: Vec<Host> = thread::scope(|scope| {
        let progress = &progress;
        let workers: Vec<_> = (0..WORKERS)
            .map(|seed| scope.spawn(move || churn(seed as u64, registries, progress)))
            .collect();
        let mut one = mortal(registries, 1);
        await_share(1);
        etcd.kill(0);
        one.kill();
        let mut another = mortal(registries, 2);
        await_share(2);
        etcd.launch(0);
        await_share(3);
        first.running.kill();
        another.kill();
        await_share(4);
        let mut last = mortal(registries, 1);
        again = Some(Registry::start(&etcd.urls()));
        await_share(5);
        last.kill();
        workers.into_iter().map(|worker| worker.join().expect("a worker does not panic")).collect()
    });
    let again = again.expect("the process was started");
    super::await_shares(&second, &again);
    await_views(&hosts);
    // A process that has just started has its state from etcd alone.
    etcd.await_health(0);
    let fresh = Registry::start(&etcd.urls());
    for registry in [&second, &again, &fresh] {
        await_service(registry, &hosts, (0..GROUPS).map(group));
    }
    await_views(&hosts);
}

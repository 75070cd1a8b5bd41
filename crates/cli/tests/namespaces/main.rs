//! Tests the binary on several hosts of a lab of network namespaces.
//!
//! They need root and `ip`, and some need `nft`. Without them, a test passes and reports on
//! standard error that it did not run. The tests also use `bash` and `setpriv`, which a Linux with
//! `ip` has.
#![cfg(target_os = "linux")]

mod doctor;
#[allow(dead_code, reason = "other tests use more of the lab")]
#[path = "../lab/mod.rs"]
mod lab;
mod paths;
mod quorum;
mod refusals;
mod service;
mod sizes;
mod subscribers;
mod tree_entries;
mod trees;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lab::{Counters, Host, Lab, RunCarom as _, Running};

const MTU: u32 = 1500;
const PAYLOAD: usize = 500;

fn numbered(bytes: usize) -> impl Iterator<Item = String> + Send {
    (1..).map(move |number: u64| format!("{:x<bytes$}", format!("{number} ")))
}

fn lines_until_enough() -> (impl Iterator<Item = String> + Send, Arc<AtomicBool>) {
    let is_enough = Arc::new(AtomicBool::new(false));
    let enough = Arc::clone(&is_enough);
    let lines = numbered(PAYLOAD).take_while(move |_| !enough.load(Ordering::SeqCst));
    (lines, is_enough)
}

fn number(line: &str) -> u64 {
    let first = line.split(' ').next().unwrap_or_default();
    first.parse().unwrap_or_else(|_| panic!("no number begins {line:?}"))
}

fn subscribe(hosts: &[Host], args: &[&str]) -> Vec<Running> {
    let args = [&["sub", "numbers"], args].concat();
    let started = hosts.iter().map(|host| {
        let mut sub = host.start(&args);
        sub.said.wait_for("joined numbers");
        sub
    });
    started.collect()
}

fn assert_wrote(sub: &mut Running, first: u64, last: u64) {
    sub.end_with(0);
    let mut wrote: Vec<u64> = sub.wrote.seen.iter().map(|line| number(line)).collect();
    wrote.sort_unstable();
    let missing = (first..=last).find(|wanted| wrote.binary_search(wanted).is_err());
    assert_eq!(missing, None, "{:#?}", sub.said.seen);
    assert_eq!(wrote.len() as u64, last + 1 - first, "lines came twice: {:#?}", sub.said.seen);
}

/// Counts lines, because they may arrive out of order. Returns the lowest number.
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

fn publish(host: &Host, count: usize, args: &[&str]) -> Running {
    let rate = ["pub", "numbers", "--rate", "20000/s", "--wait-for", "3", "--json"];
    let publisher = host.pipe(numbered(PAYLOAD).take(count), &[&rate, args].concat()).ended_with(0);
    let report = publisher.json();
    assert_eq!((&report["messages"], &report["safe"]), (&count.into(), &true.into()), "{report}");
    publisher
}

fn all_counters(lab: &Lab) -> Vec<Counters> {
    lab.hosts().iter().map(Host::counters).collect()
}

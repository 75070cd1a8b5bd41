//! Tests `carom send` to several hosts, a network namespace for each, over a slow link of the
//! sender. Faults of some receivers do not keep the others from receiving everything.
#![cfg(target_os = "linux")]

#[allow(dead_code, unused_imports, reason = "other tests use more of the lab")]
#[path = "../lab/mod.rs"]
mod lab;
mod sizes;

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use lab::{Cut, Lab, RunCarom as _, Running, build_lab, parsed, permitted};
use nix::sys::signal::{Signal, kill};
use tempfile::TempDir;

const MIB: usize = 1 << 20;

/// Builds a lab whose first host sends at most at this rate.
fn lab(hosts: usize, mbit: u64) -> Option<Lab> {
    let lab = build_lab(hosts, 1500)?;
    permitted(lab.host(1).set_rate(Some(mbit * 1_000_000)))?;
    Some(lab)
}

struct Image {
    dir: TempDir,
    file: String,
    bytes: Vec<u8>,
}

impl Image {
    fn new(bytes: usize) -> Self {
        let (dir, mut noise) = (TempDir::new().expect("a directory"), vec![0; bytes]);
        blake3::Hasher::new().finalize_xof().fill(&mut noise);
        let file = dir.path().join("image").display().to_string();
        fs::write(&file, &noise).expect("room");
        Self { dir, file, bytes: noise }
    }

    fn receiver(&self, lab: &Lab, number: usize, more: &[&str]) -> Running {
        let name = format!("r{number}");
        let target = self.dir.path().join(&name);
        fs::create_dir_all(&target).expect("a directory");
        let target = target.to_str().expect("a UTF-8 path");
        let args = ["recv", "--from", "g", target, "--name", &name, "--interface", "eth0"];
        lab.host(number + 1).start(&[&args[..], &["--json"], more].concat())
    }

    fn receivers(&self, lab: &Lab, count: usize, more: &[&str]) -> Vec<Running> {
        let mut receivers: Vec<Running> =
            (1..=count).map(|number| self.receiver(lab, number, more)).collect();
        receivers.iter_mut().for_each(|it| drop(it.said.wait_for("waiting for a transfer")));
        receivers
    }

    fn send(&self, lab: &Lab, receivers: &str, more: &[&str]) -> Running {
        let args = ["send", &self.file, "--to", "g", "--receivers", receivers];
        lab.host(1).start(&[&args[..], &["--json", "--interface", "eth0"], more].concat())
    }

    fn assert_received(&self, number: usize, receiver: &mut Running) {
        receiver.end_with(0);
        let got = fs::read(self.dir.path().join(format!("r{number}/image"))).expect("the file");
        assert!(got == self.bytes, "r{number}: other bytes");
    }
}

fn await_bytes(sender: &mut Running, bytes: usize) {
    sender.wrote.wait_until("progress", |line| {
        let line = parsed(line);
        line["event"] == "progress" && line["bytes"].as_u64() >= Some(bytes as u64)
    });
}

#[test]
fn chain_of_receivers_loads_the_senders_link_with_one_copy() {
    let Some(lab) = lab(5, 200) else { return };
    for host in lab.hosts() {
        let Some(()) = permitted(lab.cut(&Cut::Multicast(host.number()))) else { return };
    }
    let image = Image::new(24 * MIB);
    let seed = ["--seed", &lab.host(2).address().to_string()];
    let mut receivers: Vec<Running> = (1..=4).map(|it| image.receiver(&lab, it, &seed)).collect();
    let sender = image.send(&lab, "4", &[&["--copies", "1"], &seed[..]].concat()).ended_with(0);
    for (place, receiver) in receivers.iter_mut().enumerate() {
        image.assert_received(place + 1, receiver);
    }
    let summary = parsed(sender.wrote.seen.last().expect("a summary"));
    let count = |name: &str| summary["network"][name].as_u64().expect("a counter");
    // Repairs replace packets that a receiver dropped because the machine was busy. They are no
    // copies.
    let repairs = count("repairs_asked_for") + count("data_multicast_again");
    let copies = (count("datagrams_out") - repairs) as f64 / count("data_sent") as f64;
    assert!((1.0..1.2).contains(&copies), "{copies} copies: {summary}");
}

#[test]
fn one_is_killed_one_stops_for_a_while_and_one_comes_late() {
    let Some(lab) = lab(7, 100) else { return };
    let image = Image::new(48 * MIB);
    let mut receivers = image.receivers(&lab, 5, &["--loss", "0.01"]);
    let mut sender = image.send(&lab, "5", &["--patience", "8s"]);
    await_bytes(&mut sender, 16 * MIB);
    receivers[3].kill();
    receivers[4].signal(Signal::SIGSTOP);
    receivers.push(image.receiver(&lab, 6, &[]));
    thread::sleep(Duration::from_secs(5));
    receivers[4].signal(Signal::SIGCONT);

    sender.end_with(1);
    let summary = parsed(sender.wrote.seen.last().expect("a summary"));
    let rows = summary["receivers"].as_array().expect("receivers");
    let not_finished: Vec<&str> = rows
        .iter()
        .filter(|row| row["state"] != "finished")
        .map(|row| row["name"].as_str().expect("a name"))
        .collect();
    assert_eq!((rows.len(), &not_finished[..]), (6, &["r4"][..]), "{summary}");
    for (place, receiver) in receivers.iter_mut().enumerate().filter(|(place, _)| *place != 3) {
        image.assert_received(place + 1, receiver);
    }
    let left = fs::read_dir(image.dir.path().join("r4")).expect("it was made").flatten();
    let whole = left.filter(|entry| entry.file_name() == "image").count();
    assert_eq!(whole, 0, "an incomplete file has a final name");
}

#[test]
fn receiver_at_quarter_time_is_named_and_others_continue() {
    let Some(lab) = lab(5, 200) else { return };
    let image = Image::new(96 * MIB);
    let mut receivers = image.receivers(&lab, 4, &[]);
    let mut sender = image.send(&lab, "4", &["--slowest", "leave-behind"]);
    await_bytes(&mut sender, 8 * MIB);
    let slow = receivers[3].id();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                // The process may have ended.
                let _ = kill(slow, Signal::SIGSTOP);
                thread::sleep(Duration::from_millis(300));
                let _ = kill(slow, Signal::SIGCONT);
                thread::sleep(Duration::from_millis(100));
            }
        });
        let mut finished = Vec::new();
        while finished.len() < 4 {
            let line = sender
                .wrote
                .wait_until("all to finish", |line| parsed(line)["event"] == "finished");
            finished.push(parsed(&line)["receiver"].as_str().expect("a name").to_owned());
        }
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(finished[3], "r4", "{finished:?}");
    });
    sender.end_with(0);
    receivers.iter_mut().for_each(|it| it.end_with(0));
    let summary = parsed(sender.wrote.seen.last().expect("a summary"));
    let named = summary["slow"].as_array().expect("a list").iter();
    let named: Vec<&str> = named.filter_map(|it| it["receiver"].as_str()).collect();
    assert!(named.contains(&"r4"), "{summary}");
    assert!(sender.said.seen.iter().any(|line| line.starts_with("r4 (node ")), "in progress");
}

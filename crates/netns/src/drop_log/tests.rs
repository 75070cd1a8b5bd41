use std::net::UdpSocket;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{TryRecvError, channel};
use std::thread;
use std::time::Duration;

use super::clocks::Clocks;
use super::recorder::Progress;
use super::{DropLog, Dropped};
use crate::test_support::permitted;
use crate::{Host, Lab, Layout, Loss};

/// Builds a lab whose second host loses everything. Returns `None` after a report if this machine
/// does not permit it.
fn lossy_lab() -> Option<Lab> {
    let lab = Lab::build(&Layout::default()).and_then(|lab| {
        lab.host(2).set_loss(&Loss::Independent { probability: 1.0 }).map(|()| lab)
    });
    permitted(lab)
}

fn send(from: &Host, to: &Host, count: u8) {
    let socket = from.enter(|| UdpSocket::bind("0.0.0.0:0"));
    let socket = socket.expect("the lab exists").expect("a port is free");
    for number in 0..count {
        socket.send_to(&[number], (to.address(), 9000)).expect("the network is reachable");
    }
}

/// Sends datagrams until `work` has ended.
fn while_sending(from: &Host, to: &Host, work: impl FnOnce()) {
    thread::scope(|scope| {
        // A failure drops this end too, so that the sender never outlives the test.
        let (stop, stopped) = channel::<()>();
        scope.spawn(move || {
            while stopped.try_recv() == Err(TryRecvError::Empty) {
                send(from, to, 10);
                thread::sleep(Duration::from_millis(1));
            }
        });
        work();
        drop(stop);
    });
}

/// Asserts that a log of a host that drops datagrams meanwhile is complete.
fn assert_logs(host: &Host, path: &Path) {
    let log = host.log_drops(path).expect("it may log");
    thread::sleep(Duration::from_millis(20));
    let dropped = log.finish().expect("the record has what was counted");
    assert!(!dropped.is_empty());
}

/// Asserts that a running log has ten datagrams that are sent now, and nothing else.
fn assert_logs_ten(log: DropLog, from: &Host, to: &Host) {
    send(from, to, 10);
    thread::sleep(DELIVERY);
    assert_eq!(log.finish().expect("the record is complete").len(), 10);
}

fn now() -> Duration {
    Clocks::read().expect("Linux has both clocks").monotonic
}

#[test]
fn drops_that_are_read_late_have_the_time_of_the_drop() {
    let Some(lab) = lossy_lab() else { return };
    let [sender, receiver] = [1, 2].map(|number| lab.host(number));
    let path = tempfile::NamedTempFile::new().expect("a file").into_temp_path();
    let progress = Arc::<Progress>::default();
    let recorder = DropLog::recorder(receiver.filter(), &path, &progress).expect("it may log");
    let mut spans = Vec::new();
    for _ in 0..3 {
        let before = now();
        send(sender, receiver, 10);
        thread::sleep(DELIVERY);
        spans.push(before - CLOCKS_ERROR..now() + CLOCKS_ERROR);
    }
    progress.stop.store(true, Ordering::Release);
    recorder.run().expect("it records");
    let dropped = Dropped::read(&path).expect("it is complete");
    assert_eq!(dropped.len(), 30);
    for (drops, span) in dropped.chunks(10).zip(spans) {
        let late = drops.iter().find(|it| !span.contains(&it.at));
        assert_eq!(late, None, "outside of {span:?}");
    }
}

#[test]
fn every_drop_after_the_start_of_a_log_is_in_its_account() {
    let Some(lab) = lossy_lab() else { return };
    let [sender, receiver] = [1, 2].map(|number| lab.host(number));
    let folder = tempfile::TempDir::new().expect("a folder");
    while_sending(sender, receiver, || {
        // Datagrams are dropped while each log starts and ends.
        for number in 0..10 {
            assert_logs(receiver, &folder.path().join(number.to_string()));
        }
    });
}

#[test]
fn log_after_an_abandoned_one_is_complete() {
    let Some(lab) = lossy_lab() else { return };
    let [sender, receiver] = [1, 2].map(|number| lab.host(number));
    let folder = tempfile::TempDir::new().expect("a folder");
    while_sending(sender, receiver, || {
        drop(receiver.log_drops(&folder.path().join("abandoned")).expect("it may log"));
        assert_logs(receiver, &folder.path().join("next"));
    });
}

#[test]
fn log_stays_complete_after_the_refusal_of_a_second_one() {
    let Some(lab) = lossy_lab() else { return };
    let [sender, receiver] = [1, 2].map(|number| lab.host(number));
    let folder = tempfile::TempDir::new().expect("a folder");
    let log = receiver.log_drops(&folder.path().join("first")).expect("it may log");
    receiver.log_drops(&folder.path().join("second")).expect_err("there is one");
    assert_logs_ten(log, sender, receiver);
}

#[test]
fn changed_losses_leave_a_running_log_in_place() {
    let Some(lab) = lossy_lab() else { return };
    let [sender, receiver] = [1, 2].map(|number| lab.host(number));
    let folder = tempfile::TempDir::new().expect("a folder");
    let log = receiver.log_drops(&folder.path().join("drops")).expect("it may log");
    for probability in [0.0, 1.0] {
        receiver.set_loss(&Loss::Independent { probability }).expect("it is possible");
    }
    assert_logs_ten(log, sender, receiver);
}

/// Time within which a datagram reaches a host.
const DELIVERY: Duration = Duration::from_millis(50);
const CLOCKS_ERROR: Duration = Duration::from_micros(2);

//! Tests transfers to full disks and to directories that cannot be written to.
//!
//! Some tests need root to mount a small disk. Without root, they pass and report that they did not
//! run.

use std::fs;
use std::path::Path;

use carom_files::{ReceiveError, ReceiveOptions, Receiving, State};

use crate::kit::{
    Wire, failure, finish, into, names, offered, open, receive, row, send_also_to, with_receivers,
};
use crate::small_disk::SmallDisk;

#[test]
fn too_little_space_is_known_before_anything_is_received() {
    let (places, sending) = offered(8 << 20, with_receivers(1));
    let Some(_disk) = SmallDisk::mount(&places.folder(0)) else { return };
    let started = Receiving::start(sending.offer(), into(&places, 0)).map(drop);
    let Err(ReceiveError::NoSpace { needed, free, .. }) = started else { panic!("{started:?}") };
    assert_eq!(needed, 8 << 20);
    assert!(free <= 6 << 20);
    assert_eq!(names(&places.folder(0)), [""; 0], "nothing is left beside it");
    let summary = send_also_to(sending, into(&places, 1));
    let reason = failure(&summary, "receiver 0");
    assert!(reason.starts_with("not enough space: 8388608 bytes needed, "), "{reason}");
    let directory = places.folder(0).display().to_string();
    assert!(reason.ends_with(&format!(" bytes free in '{directory}'")), "{reason}");
    assert_eq!(row(&summary, "receiver 1").state, State::Finished);
}

#[test]
fn receiver_with_a_full_disk_is_named_and_can_resume() {
    let (places, sending) = offered(5 << 20, with_receivers(2));
    let Some(_disk) = SmallDisk::mount(&places.folder(0)) else { return };
    let filler = places.folder(0).join("filler");
    let fills = filler.clone();
    let wire = Wire::whole().at(20, move || drop(fs::write(&fills, vec![1; 6 << 20])));
    let full = receive(sending.offer(), &wire.listeners, into(&places, 0));
    receive(sending.offer(), &wire.listeners, into(&places, 1));
    let summary = finish(sending, wire);
    let error = full.wait().expect_err("there is no room");
    assert!(matches!(error, ReceiveError::Disk { .. }), "{error:?}");
    let reason = failure(&summary, "receiver 0");
    assert!(reason.contains("No space left"), "{reason}");
    assert_eq!(row(&summary, "receiver 1").state, State::Finished);
    assert!(!names(&places.folder(0)).contains(&"data".to_owned()));

    fs::remove_file(filler).expect("it was made here");
    let sending = open(&[&places.from.join("data")], with_receivers(1));
    let summary = send_also_to(sending, into(&places, 0));
    assert!(summary.is_success(), "{summary:?}");
    assert!(summary.receivers[0].resumed_bytes >= 1 << 20, "{summary:?}");
    assert_eq!(names(&places.folder(0)), ["data"]);
}

#[test]
fn unwritable_directory_is_reported_to_the_sender() {
    let (places, sending) = offered(100, with_receivers(1));
    // The directory does not exist, and not even root can create it there.
    let nowhere = Path::new("/proc/carom").to_owned();
    let options = ReceiveOptions { directory: nowhere, ..into(&places, 0) };
    let started = Receiving::start(sending.offer(), options).map(drop);
    assert!(matches!(started, Err(ReceiveError::Disk { .. })), "{started:?}");
    let summary = send_also_to(sending, into(&places, 1));
    let reason = failure(&summary, "receiver 0");
    assert!(reason.contains("/proc/carom"), "{reason}");
}

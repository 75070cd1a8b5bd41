//! Tests transfers to full disks and to directories that cannot be written to.
//!
//! Some tests need root to mount a small disk. Without root, they pass and report that they did not
//! run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use carom_files::{ReceiveError, ReceiveOptions, Receiving, State};

use crate::kit::{
    Places, Wire, failure, finish, into, lacking, names, offered, open, receive, row, send_also_to,
    with_receivers,
};

struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: &Path) -> Result<Self, String> {
        fs::create_dir_all(at).map_err(|error| error.to_string())?;
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=6m", "carom-test"]).arg(at);
        let output = mount.output().map_err(|error| error.to_string())?;
        match output.status.success() {
            true => Ok(Self(at.to_owned())),
            false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // A lazy unmount succeeds even if a file is still open.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn too_little_space_is_known_before_anything_is_received() {
    let places = Places::new();
    let _disk = match SmallDisk::mount(&places.folder(0)) {
        Ok(disk) => disk,
        Err(why) => return lacking("a disk that is too small", &format!("needs root: {why}")),
    };
    let file = places.file("data", 8 << 20);
    let sending = open(&[&file], with_receivers(1));
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
    let places = Places::new();
    let _disk = match SmallDisk::mount(&places.folder(0)) {
        Ok(disk) => disk,
        Err(why) => return lacking("a disk that fills up", &format!("needs root: {why}")),
    };
    let file = places.file("data", 5 << 20);
    let sending = open(&[&file], with_receivers(2));
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
    let sending = open(&[&file], with_receivers(1));
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

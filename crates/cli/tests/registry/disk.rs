//! Tests a disk that is really full: a small one in memory, which needs root. Without root, the
//! test passes and reports on standard error that it did not run.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use carom_proto::NodeId;
use carom_proto::membership::service::Unserved;
use carom_proto::membership::service::frame::{Frame, JoinRefusal};

use crate::raw::{RawNode, group_name};
use crate::service::{Service, assert_refused};
use crate::skipping::lacking;

struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: &Path) -> Result<Self, String> {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=6m", "carom-test"]).arg(at);
        let output = mount.output().map_err(|error| error.to_string())?;
        match output.status.success() {
            true => Ok(Self(at.to_owned())),
            false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        }
    }

    fn fill(&self) -> PathBuf {
        let path = self.0.join("filler");
        let mut file = File::create(&path).expect("a file has room for its name");
        for size in [1 << 16, 1] {
            while file.write_all(&vec![1; size]).is_ok() {}
        }
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // A lazy unmount succeeds even if a file is still open.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn on_a_full_disk_joins_are_refused_and_what_was_there_stays() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let disk = match SmallDisk::mount(folder.path()) {
        Ok(disk) => disk,
        Err(why) => {
            return lacking(&format!("needs root and tmpfs: {why}"));
        }
    };
    let store = folder.path().join("store");
    let long = ["--detection", "10min"];
    let mut service = Service::start_in(&store, &long);
    let mut node = RawNode::open(&service.address, NodeId(0xA11));
    let filler = disk.fill();
    let stored = join_until_full(&mut node);
    let flags = ["--interface", "127.0.0.1", "--registry", &service.address];
    assert_refused(&[&["sub", "new"], &flags[..]].concat(), "its store is full");
    assert_members(&service, &node, &stored);
    let status = service.status();
    assert!(status["counters"]["commits_failed"].as_u64() >= Some(1), "{status:#}");

    std::fs::remove_file(filler).expect("it was made here");
    let new = service.node("new", &[]);
    service.running.kill();
    service.start_again(&long);
    assert_members(&service, &node, &stored);
    assert!(service.get("/members?group=new").contains(&new.id));
    drop(service);
    drop(disk);
}

/// Joins group after group until the store is full. Returns the numbers of the joined ones.
fn join_until_full(node: &mut RawNode) -> BTreeSet<u32> {
    let mut stored = BTreeSet::new();
    for number in 0..100_000 {
        node.join(number);
        let answer = loop {
            match node.next().expect("the link is open") {
                Frame::Joined { .. } => break None,
                Frame::JoinRefused { why, .. } => break Some(why),
                _ => {}
            }
        };
        match answer {
            None => assert!(stored.insert(number)),
            Some(why) => {
                assert_eq!(why, JoinRefusal::Unserved(Unserved::StoreFull));
                return stored;
            }
        }
    }
    panic!("the disk never filled up");
}

fn assert_members(service: &Service, node: &RawNode, groups: &BTreeSet<u32>) {
    let id = node.id.to_string();
    for number in groups {
        let members = service.get(&format!("/members?group={}", group_name(*number)));
        assert!(members.contains(&id), "group {number} was acknowledged: {members}");
    }
}

//! Tests a store on a full disk. Without root, the tests report on standard error that they did not
//! run.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use carom_proto::NodeId;
use carom_proto::membership::service::Unserved;
use carom_proto::membership::service::frame::JoinRefusal;

use crate::raw::{RawNode, group_name};
use crate::service::{Service, assert_refused};
use crate::small_disk::SmallDisk;

fn fill(disk: &Path) -> PathBuf {
    let path = disk.join("filler");
    let mut file = File::create(&path).expect("a file has room for its name");
    for size in [1 << 16, 1] {
        while file.write_all(&vec![1; size]).is_ok() {}
    }
    path
}

#[test]
fn on_a_full_disk_joins_are_refused_and_what_was_there_stays() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let Some(disk) = SmallDisk::mount(folder.path()) else { return };
    let store = folder.path().join("store");
    let long = ["--detection", "10min"];
    let mut service = Service::start_in(&store, &long);
    let mut node = RawNode::open(&service.address, NodeId(0xA11));
    let filler = fill(folder.path());
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

fn join_until_full(node: &mut RawNode) -> BTreeSet<u32> {
    let mut stored = BTreeSet::new();
    for number in 0..100_000 {
        if let Err(why) = node.join_answered(number) {
            assert_eq!(why, JoinRefusal::Unserved(Unserved::StoreFull));
            return stored;
        }
        assert!(stored.insert(number));
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

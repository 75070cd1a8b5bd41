//! Tests the commands that install trees, of processes that stop or lose their partitions.

use std::path::PathBuf;
use std::time::Duration;

use carom::Profile;
use carom::blocking::{Group, Node};
use nix::sys::signal::Signal;
use tempfile::TempDir;

use super::cluster::Etcd;
use super::nodes::start_node;
use super::service::Registry;
use super::{PARTITIONS, wait_until};

/// A registry with a tree command, and a bulk group with a sender and a receiver.
struct Session {
    folder: TempDir,
    registry: Registry,
    _members: [(Node, Group); 2],
}

impl Session {
    /// Returns when the command has begun. It runs in a folder of its own.
    fn start(etcd: &Etcd, command: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let topology = folder.path().join("network.toml");
        std::fs::write(&topology, "[racks]\na = [\"127.0.0.1\"]\n").expect("space for a file");
        let command = format!("cd '{}' && touch begun && {command}", folder.path().display());
        let topology = topology.display().to_string();
        let flags = ["--topology", &topology, "--on-tree", &command, "--on-tree-timeout", "10min"];
        let registry = Registry::start_with(&etcd.urls(), &flags);
        registry.await_owned(PARTITIONS);
        let members = [(); 2].map(|()| {
            let node = start_node(&[&registry.address]);
            let group = node.join("images", Profile::bulk()).expect("the registry answers");
            (node, group)
        });
        let (_, sender) = &members[0];
        sender.wait_for_members(1).expect("the group is open");
        sender.publish("data").expect("the group is open");
        let session = Self { folder, registry, _members: members };
        wait_until("a command", || session.path("begun").exists());
        session
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

#[test]
fn commands_of_a_process_that_lost_its_partitions_are_killed() {
    let Some(etcd) = Etcd::start(1) else { return };
    let session = Session::start(&etcd, "while touch alive-$$; do sleep 0.05; done");
    let mut alive = PathBuf::new();
    wait_until("a round of the command", || {
        let files = std::fs::read_dir(session.folder.path()).expect("the folder exists");
        let mut files = files.map(|file| file.expect("the folder is readable").path());
        files.find(|file| file.to_string_lossy().contains("alive-")).is_some_and(|file| {
            alive = file;
            true
        })
    });
    // The process may get its partitions back, and run another command.
    let is_running = || {
        // It fails if the command has not begun another round.
        let _ = std::fs::remove_file(&alive);
        std::thread::sleep(Duration::from_secs(1));
        alive.exists()
    };
    session.registry.running.signal(Signal::SIGSTOP);
    let other = Registry::start(&etcd.urls());
    other.await_owned(PARTITIONS);
    assert!(is_running(), "a suspended process cannot kill it");
    session.registry.running.signal(Signal::SIGCONT);
    wait_until("the end of the command", || !is_running());
}

#[test]
fn process_that_stops_owns_partitions_until_its_commands_end() {
    let Some(etcd) = Etcd::start(1) else { return };
    // The lease of the process is 2 s.
    let session = Session::start(&etcd, "sleep 2.6 && touch done");
    session.registry.running.signal(Signal::SIGINT);
    let other = Registry::start(&etcd.urls());
    other.await_owned(PARTITIONS);
    assert!(session.path("done").exists(), "another process took over before its end");
}

//! The registry processes of the rig: they start and end, own partitions, and send and store.

use std::collections::VecDeque;

use carom_proto::membership::link::{LinkCommand, LinkEnd, LinkEvent, LinkId};
use carom_proto::membership::service::frame::Owners;
use carom_proto::membership::service::*;

use super::link::Link;
use super::{Happening, PARTITIONS, Rig, address, endpoint};

pub(crate) struct Process {
    /// `None` while it is dead.
    pub(crate) server: Option<Server>,
    pub(super) accepted: u64,
    /// Paused. Events wait.
    pub(super) is_stopped: bool,
    pub(super) waiting: VecDeque<Happening>,
}

impl Rig {
    pub(crate) fn start_process(&mut self, process: usize) {
        let server = Server::new(self.config.clone(), self.rng.next_u64());
        self.processes[process].server = Some(server);
        self.publish_owners();
    }

    pub(crate) fn stop(&mut self, process: usize) {
        self.processes[process].is_stopped = true;
    }

    /// Resumes the process, which handles its timers before it reads the waiting events.
    pub(crate) fn go_on(&mut self, process: usize) {
        self.processes[process].is_stopped = false;
        if let Some(server) = &mut self.processes[process].server {
            server.handle_timeout(self.now);
        }
        self.drain_process(process);
        while let Some(happening) = self.processes[process].waiting.pop_front() {
            self.happen(happening);
        }
    }

    /// Kills the process at once. Its connections end, and what it sent may be lost.
    pub(crate) fn kill(&mut self, process: usize) {
        self.processes[process].server = None;
        for link in 0..self.links.len() {
            if self.links[link].process == process && self.links[link].is_open {
                self.links[link].is_open = false;
                self.schedule(link, 1, Happening::EndAtNode(link, LinkEnd::Broken));
            }
        }
        self.store.release(process as u64);
        self.publish_owners();
    }

    /// Returns the process that owns the partition in the store.
    pub(crate) fn owner(&self, partition: u16) -> Option<usize> {
        self.store.owner(partition).map(|owner| owner as usize)
    }

    /// Gives each partition without an owner to a process with the fewest.
    pub(crate) fn share_partitions(&mut self) {
        for partition in 0..PARTITIONS {
            if let Some(owner) = self.owner(partition) {
                // A process that lost a partition which it owns in the store gets it again.
                let server = self.processes[owner].server.as_ref();
                if server.is_some_and(|server| !server.is_owned(partition)) {
                    self.give(partition, owner);
                }
                continue;
            }
            let owned = || self.store.owned().map(|(_, owner)| owner as usize);
            let load = |process: &usize| owned().filter(|owner| owner == process).count();
            let alive = (0..self.processes.len()).filter(|it| self.processes[*it].server.is_some());
            if let Some(process) = alive.min_by_key(load) {
                self.give(partition, process);
            }
        }
    }

    /// Gives the partition to this process. The former owner learns it from the store's next
    /// answer.
    pub(crate) fn give(&mut self, partition: u16, process: usize) {
        self.store.give(partition, process as u64);
        let state = self.store.state(partition).clone();
        if let Some(server) = &mut self.processes[process].server {
            // The process may still consider itself the owner, from before another process owned
            // it.
            server.disown(self.now, partition);
            server.load(partition, state);
            server.own(self.now, partition);
        }
        self.publish_owners();
        (0..self.processes.len()).for_each(|process| self.drain_process(process));
    }

    pub(crate) fn publish_owners(&mut self) {
        let owned = self.store.owned().map(|(part, owner)| (part, address(owner as usize)));
        let owners = Owners { partitions: PARTITIONS, owned: owned.collect() };
        for process in &mut self.processes {
            if let Some(server) = &mut process.server {
                server.set_owners(owners.clone());
            }
        }
        (0..self.processes.len()).for_each(|process| self.drain_process(process));
    }

    /// Delivers bytes to the process on a connection of a node, independently of the node's
    /// provider. Returns the frames sent in answer.
    pub(crate) fn say(&mut self, process: usize, link: u64, bytes: &[u8]) -> Vec<Frame> {
        let server = self.processes[process].server.as_mut().expect("the process is alive");
        let link = LinkId(link);
        server.handle_accepted(self.now, link, endpoint(99));
        server.handle_link(self.now, link, LinkEvent::Received(bytes));
        let mut reader = FrameReader::default();
        let mut frames = Vec::new();
        while let Some(command) = server.poll_link() {
            match command {
                LinkCommand::Send { link: to, bytes } if to == link => reader.push(&bytes),
                other => assert_eq!(other, LinkCommand::Close { link }),
            }
        }
        while let Ok(Some(frame)) = reader.next_frame() {
            frames.push(frame);
        }
        frames
    }

    /// Executes a commit that has arrived at the store.
    pub(super) fn commit(&mut self, process: usize, term: u64, commit: &Commit) {
        let result = self.store.commit(process as u64, term, commit, &mut self.rng);
        let at = self.now + self.store_delay;
        self.push(at, Happening::Answer(process, commit.id, result));
    }

    pub(crate) fn drain_process(&mut self, process: usize) {
        while let Some(server) = &mut self.processes[process].server {
            if let Some(commit) = server.poll_commit() {
                let at = self.now + self.store_delay;
                let term = self.store.term(commit.partition);
                self.push(at, Happening::Store(process, term, commit));
                continue;
            }
            let Some(command) = server.poll_link() else { return };
            let find = |at: LinkId| {
                let of = |it: &Link| it.process == process && it.at_process == Some(at);
                self.links.iter().rposition(|it| of(it) && it.is_open)
            };
            match command {
                LinkCommand::Send { link, bytes } => {
                    let Some(link) = find(link) else { continue };
                    self.look_at(link, &bytes);
                    self.schedule(link, 1, Happening::ToNode(link, bytes));
                }
                LinkCommand::Close { link } => {
                    let Some(link) = find(link) else { continue };
                    self.links[link].is_open = false;
                    let end = Happening::EndAtNode(link, LinkEnd::ByPeer);
                    self.schedule(link, 1, end);
                }
                LinkCommand::Open { .. } => panic!("a process opened a link"),
            }
        }
    }
}

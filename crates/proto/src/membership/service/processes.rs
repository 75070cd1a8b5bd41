//! The registry processes of a cluster, as seen by a detector or observer.
//!
//! Each process announces all partition owners, so one address is enough to connect to all of them.
//! Two addresses of the same process are reduced to one, because a process keeps only one
//! connection to a detector.

use alloc::collections::VecDeque;
use core::time::Duration;

use super::connections::{Due, ServiceConnections, TimeLimits};
use super::protocol::frame::{
    Frame, FrameError, Hello, MAX_PARTITIONS, Owners, UnknownSettings, Welcome,
};
use crate::membership::link::{LinkEvent, LinkId};
use crate::{Endpoint, Time};

#[derive(Debug)]
pub(super) struct Processes {
    addresses: Vec<Endpoint>,
    pub(super) connections: ServiceConnections,
    events: VecDeque<(Endpoint, ProcessEvent)>,
    settings_unknown: u64,
}

#[derive(Clone, Debug)]
pub(super) enum ProcessEvent {
    Welcomed {
        lease: Duration,
        partitions: u16,
    },
    Received(Frame),
    /// The connection has ended. Everything received on it no longer applies.
    Lost,
}

impl Processes {
    pub(super) fn new(
        addresses: Vec<Endpoint>,
        greeting_time: Duration,
        retry_after: Duration,
        hello: Hello,
        seed: u64,
    ) -> Self {
        assert!(!addresses.is_empty(), "the registry must have at least one address");
        let is_patient = !retry_after.is_zero() && !greeting_time.is_zero();
        assert!(is_patient, "retry_after and greeting_time must not be zero");
        let limits =
            TimeLimits { greeting_time, first_pause: retry_after, last_pause: retry_after };
        let mut connections = ServiceConnections::new(limits, hello, seed);
        addresses.iter().for_each(|address| connections.add(Time::ZERO, *address));
        Self { addresses, connections, events: VecDeque::new(), settings_unknown: 0 }
    }

    pub(super) fn handle_link(&mut self, now: Time, link: LinkId, event: LinkEvent<'_>) {
        let Some(address) = self.connections.address_of(link) else { return };
        match event {
            LinkEvent::Opened => self.connections.on_opened(address),
            LinkEvent::Received(bytes) => self.on_bytes(now, address, link, bytes),
            LinkEvent::Closed { .. } => {
                self.connections.forget(link);
                self.on_closed(now, address);
            }
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        while let Some(due) = self.connections.pop_due(now) {
            match due {
                Due::Retry(address) => self.connections.open(now, address),
                Due::Drop(address) => self.drop_connection(now, address),
                Due::Nothing => {}
            }
        }
    }

    pub(super) fn poll_event(&mut self) -> Option<(Endpoint, ProcessEvent)> {
        self.events.pop_front()
    }

    pub(super) fn on_nonsense(&mut self, now: Time, address: Endpoint, error: FrameError) {
        self.connections.on_nonsense(address, error);
        self.events.retain(|(from, _)| *from != address);
        self.drop_connection(now, address);
    }

    pub(super) fn shut_down(&mut self) {
        self.connections.shut_down();
        self.events.clear();
    }

    pub(super) fn stats(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counters = self.connections.counters.by_name();
        counters.chain([("settings_unknown", self.settings_unknown)])
    }

    fn on_bytes(&mut self, now: Time, address: Endpoint, link: LinkId, bytes: &[u8]) {
        self.connections.push(now, address, bytes);
        loop {
            match self.connections.next_frame(address, link) {
                Ok(Some(frame)) => self.on_frame(now, address, frame),
                Ok(None) => return,
                Err(FrameError::Settings(UnknownSettings::Snapshot { group })) => {
                    tracing::warn!(%address, %group, "unknown group settings");
                    self.settings_unknown += 1;
                }
                Err(error) => self.on_nonsense(now, address, error),
            }
        }
    }

    fn on_frame(&mut self, now: Time, address: Endpoint, frame: Frame) {
        match frame {
            Frame::Welcome(welcome) => self.on_welcome(now, address, welcome),
            Frame::Refused(why) => {
                self.connections.on_refused(address, why);
                self.drop_connection(now, address);
            }
            Frame::Alive => {}
            Frame::Owners(owners) => self.on_owners(now, address, owners),
            frame => self.events.push_back((address, ProcessEvent::Received(frame))),
        }
    }

    fn on_welcome(&mut self, now: Time, address: Endpoint, welcome: Welcome) {
        if !self.connections.on_welcome(now, address, &welcome) {
            return self.on_nonsense(now, address, FrameError::Value);
        }
        // A process keeps only a detector's last connection, so another one would replace this one.
        for other in self.connections.other_addresses(address) {
            self.connections.remove(other);
            self.events.push_back((other, ProcessEvent::Lost));
        }
        let lease = Duration::from_millis(welcome.lease_ms.into());
        let partitions = welcome.owners.partitions;
        self.events.push_back((address, ProcessEvent::Welcomed { lease, partitions }));
        self.on_owners(now, address, welcome.owners);
    }

    fn on_owners(&mut self, now: Time, from: Endpoint, owners: Owners) {
        for (_, owner) in owners.reached_from(from).owned {
            let has_room = self.connections.len() < usize::from(MAX_PARTITIONS);
            if has_room && !self.connections.contains(owner) {
                self.connections.add(now, owner);
            }
        }
    }

    fn drop_connection(&mut self, now: Time, address: Endpoint) {
        if self.connections.close(address) {
            self.on_closed(now, address);
        }
    }

    fn on_closed(&mut self, now: Time, address: Endpoint) {
        let Some(closed) = self.connections.on_closed(now, address) else { return };
        if closed.was_ready {
            self.events.push_back((address, ProcessEvent::Lost));
        }
        // The process may come back under an address that was removed in favor of this one.
        for configured in &self.addresses {
            if !self.connections.contains(*configured) {
                self.connections.add(closed.retry_at, *configured);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::protocol::frame::{Member, Role};
    use super::*;
    use crate::membership::link::LinkCommand;
    use crate::{Incarnation, NodeId};

    #[test]
    fn two_addresses_of_one_process_become_one_connection() {
        let at = |port: u16| Endpoint(([10, 0, 0, 1], port).into());
        let (node, start, endpoint) = (NodeId(7), Incarnation(0), at(9));
        let member = Member { node, incarnation: 0, start, endpoint };
        let (role, second) = (Role::Detector, Duration::from_secs(1));
        let hello = Hello { role, cluster: String::new(), member, rack: String::new() };
        let mut processes = Processes::new(vec![at(1), at(2)], second, second, hello, 1);
        let mut links = Vec::new();
        for now in (1..=20_000).map(|ms| Time(ms * 1_000_000)) {
            processes.handle_timeout(now);
            while let Some(command) = processes.connections.poll_link() {
                let LinkCommand::Open { link, .. } = command else { continue };
                links.push(link);
                processes.handle_link(now, link, LinkEvent::Opened);
                let owners = Owners { partitions: 1, owned: vec![(0, at(2))] };
                let mut bytes = Vec::new();
                Frame::Welcome(Welcome { process: 1, lease_ms: 3000, owners }).encode(&mut bytes);
                processes.handle_link(now, link, LinkEvent::Received(&bytes));
            }
            let mut alive = Vec::new();
            Frame::Alive.encode(&mut alive);
            links
                .iter()
                .for_each(|it| processes.handle_link(now, *it, LinkEvent::Received(&alive)));
        }
        assert_eq!(processes.connections.addresses().count(), 1);
        assert!(processes.connections.counters.by_name().any(|it| it == ("links_welcomed", 2)));
    }
}

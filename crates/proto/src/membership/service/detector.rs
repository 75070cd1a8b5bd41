//! The failure detector of a rack: a separate process with a connection to every registry process.
//!
//! Each registry process assigns nodes to the detector: the nodes of its rack, those of the next
//! racks if they have no detector, and the next detector in the chain (Ricochet 3.2.3). The
//! detector pings them over UDP, and pings silent nodes more often. A node that does not answer
//! within the detection time is reported to all registry processes. A process removes the node
//! unless it heard the node in the second half of the reported silence.

use alloc::collections::{BTreeMap, BTreeSet};
use core::time::Duration;

use super::contract::Client;
use super::pinger::Pinger;
use super::processes::{ProcessEvent, Processes};
use super::protocol::frame::{Frame, FrameError, Hello, Member, Refusal, Role, Watched};
use crate::membership::link::{LinkCommand, LinkEvent, LinkId};
use crate::wire::Datagram;
use crate::{Class, Destination, Endpoint, Incarnation, NodeId, Time, Transmit, Wakeup};

/// Settings of a failure detector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DetectorConfig {
    /// TCP addresses of registry processes. One is enough: it announces all partition owners.
    pub addresses: Vec<Endpoint>,
    /// Cluster name, which must be that of the registry. At most 255 bytes. Default: empty.
    pub cluster: String,
    /// Rack whose nodes the detector watches. At most 255 bytes. Default: empty.
    pub rack: String,
    /// Time without an answer to a ping after which a node is reported, raised to 100 ms if it is
    /// less. If it is less than two thirds of the lease, a node that is only unreachable over UDP
    /// may be declared dead. Default: `None`, the lease.
    pub detection_time: Option<Duration>,
    /// Maximum time to open a connection and receive the welcome. Default: 3 s.
    pub greeting_time: Duration,
    /// Pause between two attempts to reach a process, varied by up to a quarter. Default: 1 s.
    pub retry_after: Duration,
}

impl Default for DetectorConfig {
    fn default() -> Self {
        Self {
            addresses: Vec::new(),
            cluster: String::new(),
            rack: String::new(),
            detection_time: None,
            greeting_time: Duration::from_secs(3),
            retry_after: Duration::from_secs(1),
        }
    }
}

/// The failure detector of a rack.
#[derive(Debug)]
pub struct Detector {
    own: NodeId,
    detection_time: Option<Duration>,
    processes: Processes,
    assignments: BTreeMap<Endpoint, Assignment>,
    pinger: Pinger,
}

#[derive(Debug, Default)]
struct Assignment {
    watched: BTreeMap<NodeId, Member>,
    successor: Option<Member>,
}

impl Detector {
    /// Creates the detector `id`, which other detectors ping at `endpoint`. An unspecified address
    /// and `seed` have the same meaning as for [`Service::new`](super::Service::new).
    ///
    /// # Panics
    /// Panics if `config` has no address, or if `greeting_time` or `retry_after` is zero.
    pub fn new(id: NodeId, endpoint: Endpoint, config: DetectorConfig, seed: u64) -> Self {
        let DetectorConfig { addresses, cluster, rack, .. } = config;
        let member = Member { node: id, incarnation: 0, start: Incarnation(0), endpoint };
        let hello = Hello { role: Role::Detector, cluster, member, rack };
        let (greeting_time, retry_after) = (config.greeting_time, config.retry_after);
        Self {
            own: id,
            detection_time: config.detection_time,
            processes: Processes::new(addresses, greeting_time, retry_after, hello, seed),
            assignments: BTreeMap::new(),
            pinger: Pinger::new(id),
        }
    }

    /// Returns the ids of the watched nodes and detectors, in ascending order.
    pub fn watched(&self) -> impl Iterator<Item = NodeId> {
        self.pinger.targets()
    }

    /// Returns the known addresses of registry processes, with `true` for those that are connected.
    pub fn processes(&self) -> impl Iterator<Item = (Endpoint, bool)> {
        self.processes.connections.addresses()
    }

    /// Returns the last refusal by a registry process, or `None` if a welcome has followed it.
    pub fn last_refusal(&self) -> Option<&Refusal> {
        self.processes.connections.last_refusal.as_ref()
    }

    /// Returns all counters with their names.
    pub fn stats(&self) -> Vec<(&'static str, u64)> {
        self.processes.stats().chain(self.pinger.counters.by_name()).collect()
    }

    fn process_events(&mut self, now: Time) {
        while let Some((address, event)) = self.processes.poll_event() {
            match event {
                ProcessEvent::Welcomed { lease, .. } => {
                    self.pinger.set_detection_time(self.detection_time.unwrap_or(lease));
                }
                ProcessEvent::Received(Frame::Watch(changes)) => {
                    self.on_watch(now, address, &changes)
                }
                ProcessEvent::Received(Frame::Successor { next, .. }) => {
                    self.assignments.entry(address).or_default().successor = next;
                    self.follow(now);
                }
                ProcessEvent::Received(_) => {
                    self.processes.on_nonsense(now, address, FrameError::Kind);
                }
                ProcessEvent::Lost => {
                    self.assignments.remove(&address);
                    self.follow(now);
                }
            }
        }
    }

    fn on_watch(&mut self, now: Time, address: Endpoint, changes: &[Watched]) {
        let assignment = self.assignments.entry(address).or_default();
        for Watched { watched, member } in changes {
            if *watched {
                assignment.watched.insert(member.node, *member);
            } else if assignment.watched.get(&member.node) == Some(member) {
                assignment.watched.remove(&member.node);
            }
        }
        self.follow(now);
    }

    fn follow(&mut self, now: Time) {
        let mut wanted: BTreeMap<NodeId, Member> = BTreeMap::new();
        for assignment in self.assignments.values() {
            for member in assignment.watched.values().chain(&assignment.successor) {
                let known = wanted.entry(member.node).or_insert(*member);
                *known = (*known).max(*member);
            }
        }
        wanted.remove(&self.own);
        let targets: BTreeSet<NodeId> = self.pinger.targets().collect();
        for node in targets.iter().filter(|node| !wanted.contains_key(node)) {
            self.pinger.unwatch(*node);
        }
        for member in wanted.into_values() {
            if !self.pinger.watches(member) {
                self.pinger.watch(now, member);
            }
        }
    }
}

impl Client for Detector {
    fn handle_link(&mut self, now: Time, link: LinkId, event: LinkEvent<'_>) {
        self.processes.handle_link(now, link, event);
        self.process_events(now);
    }

    fn handle_datagram(&mut self, now: Time, source: Endpoint, datagram: &Datagram<'_>) {
        let is_known = self.pinger.handle_datagram(now, source, datagram);
        self.pinger.counters.pings_foreign += u64::from(!is_known);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.processes.handle_timeout(now);
        self.process_events(now);
        self.pinger.handle_timeout(now);
        while let Some(report) = self.pinger.reports.pop_front() {
            self.processes.connections.send_to_all(&report);
        }
    }

    /// Lets another detector take over the rack at once, instead of after the lease.
    fn shut_down(&mut self) {
        self.processes.shut_down();
        self.assignments.clear();
        let targets: Vec<NodeId> = self.pinger.targets().collect();
        targets.into_iter().for_each(|node| self.pinger.unwatch(node));
    }

    fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Transmit> {
        let (to, datagram) = self.pinger.poll_datagram()?;
        out.extend_from_slice(&datagram);
        Some(Transmit { destination: Destination::Endpoint(to), class: Class::Control })
    }

    fn poll_link(&mut self) -> Option<LinkCommand> {
        self.processes.connections.poll_link()
    }

    fn poll_timeout(&self) -> Option<Wakeup> {
        let own = self.processes.connections.next_due();
        let own = own.map(|at| Wakeup { at, reason: "failure detector" });
        let ping = self.pinger.next_due().map(|at| Wakeup { at, reason: "ping a node" });
        Wakeup::earlier(own, ping)
    }
}

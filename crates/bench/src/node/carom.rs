use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use carom::Event;
use carom::blocking::{Group, Node};

use super::assignment::Assignment;
use super::endpoint::Endpoint;
use super::error::NodeError;
use super::recorder::Recorder;
use super::settings::Settings;
use crate::clock;
use crate::record::NodeReport;

/// A node of Carom, with one receiving thread for each group.
pub(super) struct Carom {
    node: Node,
    groups: Vec<Group>,
    receivers: Vec<JoinHandle<()>>,
    is_over: Arc<AtomicBool>,
    reported_lost: Arc<AtomicU64>,
}

impl Carom {
    /// Starts a node and joins the groups. A node that sends waits until all others are members.
    pub(super) fn start(work: &Assignment, recorder: &Arc<Recorder>) -> Result<Self, NodeError> {
        let settings = Settings::read(work.settings.as_deref())?;
        let mut builder = Node::builder().interface(work.address.to_string());
        if let Some(mtu) = settings.mtu {
            builder = builder.mtu(mtu);
        }
        if let Some(port) = settings.multicast_port {
            builder = builder.multicast_port(port);
        }
        if let Some(events) = settings.queue {
            builder = builder.queue(events);
        }
        let node = Node::start(builder).map_err(|error| carom(&error))?;
        let groups = (0..work.groups).map(|group| {
            let joined =
                node.join(&format!("bench-{}-{group}", work.magic), settings.group_profile());
            joined.map_err(|error| carom(&error))
        });
        let groups: Vec<Group> = groups.collect::<Result<_, _>>()?;
        let is_over = Arc::new(AtomicBool::new(false));
        let reported_lost = Arc::new(AtomicU64::new(0));
        let receivers = groups.iter().map(|group| {
            let (group, recorder) = (group.clone(), Arc::clone(recorder));
            let (is_over, lost) = (Arc::clone(&is_over), Arc::clone(&reported_lost));
            thread::spawn(move || receive(&group, &recorder, &is_over, &lost))
        });
        let receivers = receivers.collect();
        if work.role.sends() {
            for group in &groups {
                group.wait_for_members(work.nodes as usize - 1).map_err(|error| carom(&error))?;
            }
        }
        Ok(Self { node, groups, receivers, is_over, reported_lost })
    }
}

impl Endpoint for Carom {
    fn send(&mut self, group: u32, message: Vec<u8>) -> Result<(), NodeError> {
        let published = self.groups[group as usize].publish(message);
        published.map(drop).map_err(|error| carom(&error))
    }

    fn finish(self: Box<Self>) -> NodeReport {
        self.is_over.store(true, Ordering::Relaxed);
        for receiver in self.receivers {
            receiver.join().expect("a receiving thread does not panic");
        }
        let mut counters = BTreeMap::new();
        let lost = self.reported_lost.load(Ordering::Relaxed);
        counters.insert("reported_lost".to_owned(), lost);
        let stats = self.node.status().stats;
        add("lateral", stats.lateral.by_name(), &mut counters);
        add("ordered", stats.ordered.by_name(), &mut counters);
        add("bulk", stats.bulk.by_name(), &mut counters);
        add("node", stats.node.by_name(), &mut counters);
        add("net", stats.net.by_name(), &mut counters);
        self.node.close();
        let system = format!("carom {}", env!("CARGO_PKG_VERSION"));
        NodeReport { system, counters, ..NodeReport::default() }
    }
}

fn receive(group: &Group, recorder: &Recorder, is_over: &AtomicBool, lost: &AtomicU64) {
    while !is_over.load(Ordering::Relaxed) {
        match group.recv_timeout(CHECK) {
            Ok(Some(Event::Message(message))) => {
                recorder.record(&message.payload, clock::monotonic_ns(), None);
            }
            Ok(Some(Event::Lost(gap))) => {
                lost.fetch_add(gap.count().into(), Ordering::Relaxed);
            }
            Ok(Some(_)) | Err(_) => {}
            Ok(None) => return,
        }
    }
}

/// Adds the counters that are not 0.
fn add(
    part: &str,
    all: impl Iterator<Item = (&'static str, u64)>,
    counters: &mut BTreeMap<String, u64>,
) {
    let counted = all.filter(|(_, count)| *count > 0);
    counters.extend(counted.map(|(name, count)| (format!("{part}.{name}"), count)));
}

fn carom(error: &impl ToString) -> NodeError {
    NodeError::Carom(error.to_string())
}

const CHECK: Duration = Duration::from_millis(50);

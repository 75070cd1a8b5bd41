use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use carom::blocking::{Group, Node};
use carom::{Event, PathChoice, Receiver};
use futures_util::stream::{SelectAll, StreamExt as _, select_all};
use pollster::block_on;

use super::assignment::Assignment;
use super::endpoint::{Background, Endpoint};
use super::error::NodeError;
use super::recorder::Recorder;
use super::settings::Settings;
use crate::clock;
use crate::record::NodeReport;

/// A node of Carom, with one thread that receives from all groups.
pub(super) struct Carom {
    node: Node,
    groups: Vec<Group>,
    /// Group of the background transfer.
    background: Option<Group>,
    receiver: JoinHandle<u64>,
}

impl Carom {
    /// Starts a node and joins the groups. A node that sends waits until all others are members.
    pub(super) fn start(work: &Assignment, recorder: &Arc<Recorder>) -> Result<Self, NodeError> {
        let settings = Settings::read(work.settings.as_deref())?;
        let mut builder = Node::builder().interface(work.address.to_string());
        builder = builder.registry(&settings.registry);
        if settings.only_multicast {
            builder = builder.path(PathChoice::Multicast);
        }
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
        let join = |name: String, profile| {
            node.join(&format!("bench-{}-{name}", work.magic), profile)
                .map_err(|error| carom(&error))
        };
        let groups =
            (0..work.groups).map(|group| join(group.to_string(), settings.group_profile()));
        let groups: Vec<Group> = groups.collect::<Result<_, _>>()?;
        let background = (work.background_mib > 0)
            .then(|| join("background".to_owned(), carom::Profile::bulk()))
            .transpose()?;
        let events = groups.iter().chain(&background).map(|group| (**group).clone().split().1);
        let (events, recorder) = (select_all(events), Arc::clone(recorder));
        let receiver = thread::spawn(move || block_on(receive(events, &recorder)));
        if work.role.sends() {
            for group in groups.iter().chain(&background) {
                group.wait_for_members(work.nodes as usize - 1).map_err(|error| carom(&error))?;
            }
        }
        let background = background.filter(|_| work.role.sends());
        Ok(Self { node, groups, background, receiver })
    }
}

impl Endpoint for Carom {
    fn send(&mut self, group: u32, message: Vec<u8>) -> Result<(), NodeError> {
        let published = self.groups[group as usize].publish(message);
        published.map(drop).map_err(|error| carom(&error))
    }

    fn background(&mut self) -> Option<Background> {
        let group = self.background.take()?;
        Some(Background::new(move |message| {
            group.publish(message).map(drop).map_err(|error| carom(&error))
        }))
    }

    fn finish(self: Box<Self>) -> NodeReport {
        let stats = self.node.status().stats;
        self.node.close();
        let lost = self.receiver.join().expect("the receiving thread does not panic");
        let mut counters = BTreeMap::from([("reported_lost".to_owned(), lost)]);
        add("lateral", stats.lateral.by_name(), &mut counters);
        add("ordered", stats.ordered.by_name(), &mut counters);
        add("bulk", stats.bulk.by_name(), &mut counters);
        add("node", stats.node.by_name(), &mut counters);
        add("net", stats.net.by_name(), &mut counters);
        let system = format!("carom {}", env!("CARGO_PKG_VERSION"));
        NodeReport { system, counters, ..NodeReport::default() }
    }
}

/// Records the deliveries of all groups until they are closed. Returns the number of messages that
/// were reported as lost.
async fn receive(mut events: SelectAll<Receiver>, recorder: &Recorder) -> u64 {
    let mut lost = 0;
    while let Some(event) = events.next().await {
        match event {
            Event::Message(message) => {
                recorder.record(&message.payload, clock::monotonic_ns(), None);
            }
            Event::Lost(gap) => lost += u64::from(gap.count()),
            _ => {}
        }
    }
    lost
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

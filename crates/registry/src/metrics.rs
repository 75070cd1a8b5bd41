//! Counters and gauges of a registry process in the OpenMetrics text format.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _, text};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::status::Status;

pub(crate) fn text(status: Status) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("carom_registry");
    registry.register_collector(Box::new(Snapshot(status)));
    let mut text = String::new();
    text::encode(&mut text, &registry)?;
    Ok(text)
}

#[derive(Debug)]
struct Snapshot(Status);

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Self(status) = self;
        let linked = status.nodes.iter().filter(|node| node.linked).count();
        let watched = status.nodes.iter().filter(|node| node.watched_by.is_some()).count();
        let groups: usize = status.owned().map(|partition| partition.groups).sum();
        let members: usize = status.owned().map(|partition| partition.members).sum();
        let registered = usize::from(status.store.registered);
        let sizes = [
            ("nodes", "Nodes whose leases the process holds", status.nodes.len()),
            ("nodes_linked", "Nodes connected to the process", linked),
            ("nodes_watched", "Nodes pinged by a failure detector", watched),
            ("detectors", "Failure detectors considered alive", status.detectors.len()),
            ("links", "TCP connections to the process", status.links),
            ("partitions", "Partitions that the process owns", status.owned().count()),
            ("groups", "Groups with members in the owned partitions", groups),
            ("members", "Members of the groups in the owned partitions", members),
            ("store_registered", "1 if the process may own partitions", registered),
            ("open_requests", "Requests that wait for the store", status.open_requests),
        ];
        for (name, help, value) in sizes {
            let gauge = ConstGauge::new(value as i64);
            let metric = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
            gauge.encode(metric)?;
        }
        for (name, value) in &status.counters {
            let counter = ConstCounter::new(*value);
            let help = name.replace('_', " ");
            let metric = encoder.encode_descriptor(name, &help, None, counter.metric_type())?;
            counter.encode(metric)?;
        }
        Ok(())
    }
}

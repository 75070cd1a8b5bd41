//! The results of one run, computed alike for every system.

mod arrivals;
mod load;
mod order;
mod sent;

use serde::{Deserialize, Serialize};

use crate::drops::Drops;
use crate::latencies::{Latencies, Quantiles};
use crate::record::NodeFiles;
use arrivals::{Arrivals, Spread};
use sent::Sent;

pub use load::Idle;

/// The messages of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Workload {
    /// Number of groups. Message number `n` is in group `n` modulo this number.
    pub groups: u32,
    /// Bytes of a message.
    pub size: usize,
    /// Messages per second of each sender. 0 means as fast as possible.
    pub rate: f64,
}

/// The evidence of one node.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// Files that the node wrote.
    pub files: NodeFiles,
    /// `true` if the node had to deliver messages.
    pub receives: bool,
    /// `true` if the node was killed, so that it wrote no files.
    pub is_killed: bool,
    /// Datagrams dropped at the node.
    pub drops: Drops,
    /// Processor time of the node's processes during the run in nanoseconds, user and system, if it
    /// is known.
    pub cpu_ns: Option<u64>,
    /// Packets that the node's interface received during the run, if they were counted.
    pub packets: Option<u64>,
    /// UDP datagrams that the kernel discarded at the node's sockets, most of them because a
    /// receive buffer was full. `None` if they were not counted.
    pub kernel_drops: Option<u64>,
    /// Packets that the node's link dropped in both directions, if they were counted.
    pub link_drops: Option<u64>,
    /// Load of the node while it was left alone after the run, if this was measured.
    pub idle: Option<Idle>,
}

impl Node {
    /// Returns `true` if the node sends and has nothing to deliver. A killed node, which has no
    /// record of what it sent, does not count.
    fn only_sends(&self) -> bool {
        !self.receives && !self.files.sent.is_empty()
    }
}

/// The results of one run. Times are in nanoseconds.
///
/// A *copy* is one message at one receiver. A receiver is expected to deliver the messages of all
/// other nodes, and its own if it delivers any of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Account {
    /// Nodes that had to deliver messages.
    pub receivers: u64,
    /// Nodes that were killed during the run.
    pub killed: u64,
    /// Messages that were sent.
    pub sent: u64,
    /// Copies that had to be delivered.
    pub expected: u64,
    /// Expected copies that were delivered.
    pub delivered: u64,
    /// Expected copies that were not delivered.
    pub missing: u64,
    /// Deliveries of a copy after its first one.
    pub duplicates: u64,
    /// Deliveries of messages that no node has recorded as sent.
    pub unknown: u64,
    /// Copies that were in a datagram dropped at the receiver before their delivery.
    pub lost: u64,
    /// Delivered copies in neither part of `latency`: the kernel discarded datagrams at their
    /// receiver, or a link of their sender or receiver dropped some, and it is not known which.
    pub unclassified: u64,
    /// UDP datagrams that the kernel discarded at the sockets of all nodes, in addition to the
    /// dropped ones. `None` unless they were counted everywhere.
    pub kernel_drops: Option<u64>,
    /// Packets that the links of all nodes dropped, because the rate exceeded their limit.
    /// They are not in the record of drops. `None` unless they were counted everywhere.
    pub link_drops: Option<u64>,
    /// Datagrams dropped at all receivers.
    pub datagrams_dropped: u64,
    /// Hash of the order of delivery within each group, for each receiver.
    pub order: Vec<String>,
    /// `true` if all receivers have the same order.
    pub orders_agree: bool,
    /// First deliveries that came after that of a later message of the same sender and group, at
    /// all receivers.
    pub out_of_order: u64,
    /// Time by which each send call was later than the schedule of its sender. Empty at full speed.
    ///
    /// The schedule starts at the latest time at which no send call is early.
    pub send_delay: Quantiles,
    /// Time from the send call to the delivery at another node.
    pub latency: Quantiles,
    /// The part of `latency` of copies that were not lost. Those of `unclassified` are left out.
    pub latency_kept: Quantiles,
    /// The part of `latency` of copies that were lost and recovered.
    pub latency_recovered: Quantiles,
    /// Time from the receipt by the kernel to the delivery, at receivers whose nodes report it.
    #[serde(default)]
    pub latency_from_kernel: Quantiles,
    /// Time from the first to the last receiver of each message that all receivers except its
    /// sender delivered.
    pub spread: Quantiles,
    /// Share of messages that are not in `spread`, because a receiver lacks them. `None` if no
    /// message had two receivers.
    pub spread_left_out: Option<f64>,
    /// Longest time without a delivery at any receiver, between its first and its last one. `None`
    /// if no receiver delivered two messages.
    pub silence: Option<u64>,
    /// Processor time of all nodes during the run for each delivered copy, in microseconds. `None`
    /// if that of a node is not known.
    pub cpu_us_per_copy: Option<f64>,
    /// Mean processor time of the nodes that only send, in percent of one processor, over the time
    /// from the first send call to the last delivery. `None` if that of one is not known.
    pub cpu_percent_sender: Option<f64>,
    /// The same of the nodes that had to deliver messages.
    pub cpu_percent_receivers: Option<f64>,
    /// Packets received for each receiver and message. `None` unless they were counted everywhere.
    pub packets_per_copy: Option<f64>,
    /// `true` if the messages were sent at a set rate, so that goodput does not compare systems.
    #[serde(default)]
    pub is_paced: bool,
    /// Bytes of messages per second at the slowest receiver, while it delivered the middle 80 % of
    /// its copies. `None` with fewer than ten copies.
    pub goodput_slowest: Option<f64>,
    /// Mean of the receivers' bytes of messages per second.
    pub goodput_mean: Option<f64>,
    /// Bytes per second of the background transfer at the slowest receiver, if the row has one.
    pub background_slowest: Option<f64>,
    /// Mean processor time of all nodes while nothing is sent, in percent of one processor. `None`
    /// if it was not measured, or that of a node is not known.
    #[serde(default)]
    pub idle_cpu_percent: Option<f64>,
    /// Mean number of packets per second that a node receives while nothing is sent. `None` if it
    /// was not measured.
    #[serde(default)]
    pub idle_packets_per_second: Option<f64>,
}

impl Account {
    /// Computes the results of a run. The place of a node in `nodes` is its index.
    ///
    /// # Panics
    /// Panics if the workload has 0 groups.
    pub fn of(nodes: &[Node], work: &Workload) -> Self {
        let sent = Sent::of(nodes.iter().map(|node| &*node.files.sent));
        let mut sum = Sum::default();
        let mut arrivals = Vec::new();
        for (index, node) in nodes.iter().enumerate().filter(|(_, node)| node.receives) {
            let own = Arrivals::of(index, &node.files.delivered, &sent);
            sum.add(index, nodes, &own, &sent);
            arrivals.push(own);
        }
        let hash = |node: &Node| order::hash(&node.files.delivered, work.groups);
        let violations = |node: &Node| order::violations(&node.files.delivered, work.groups);
        let senders = nodes.iter().filter(|node| node.only_sends());
        let receivers = || nodes.iter().filter(|node| node.receives);
        let idle = || nodes.iter().map(|node| node.idle);
        let order: Vec<String> = receivers().map(hash).collect();
        let goodputs: Vec<f64> = arrivals.iter().filter_map(|it| it.goodput(work.size)).collect();
        let cpu_ns: Option<u64> = nodes.iter().map(|node| node.cpu_ns).sum();
        let spread = Spread::of(&arrivals, &sent);
        let is_measured = goodputs.len() == arrivals.len() && !goodputs.is_empty();
        Self {
            receivers: arrivals.len() as u64,
            killed: nodes.iter().filter(|node| node.is_killed).count() as u64,
            sent: sent.count(),
            expected: sum.expected,
            delivered: sum.delivered,
            missing: sum.expected - sum.delivered,
            duplicates: arrivals.iter().map(|it| it.duplicates).sum(),
            unknown: arrivals.iter().map(|it| it.unknown).sum(),
            lost: sum.lost,
            unclassified: sum.unclassified.count(),
            kernel_drops: nodes.iter().map(|node| node.kernel_drops).sum(),
            link_drops: nodes.iter().map(|node| node.link_drops).sum(),
            datagrams_dropped: sum.datagrams_dropped,
            orders_agree: order.windows(2).all(|pair| pair[0] == pair[1]),
            order,
            out_of_order: receivers().map(violations).sum(),
            send_delay: sent.delays(work.rate).quantiles(),
            latency: sum.latency().quantiles(),
            latency_kept: sum.kept.quantiles(),
            latency_recovered: sum.recovered.quantiles(),
            latency_from_kernel: sum.from_kernel.quantiles(),
            spread: spread.times.quantiles(),
            spread_left_out: spread.left_out(),
            silence: arrivals.iter().filter_map(Arrivals::silence_ns).max(),
            cpu_us_per_copy: cpu_ns.and_then(|ns| ratio(ns as f64 / 1e3, sum.delivered)),
            cpu_percent_sender: load::cpu_percent(senders.map(|it| it.cpu_ns), &sent, &arrivals),
            cpu_percent_receivers: load::cpu_percent(
                receivers().map(|it| it.cpu_ns),
                &sent,
                &arrivals,
            ),
            background_slowest: load::background_slowest(receivers().map(|it| &it.files.report)),
            packets_per_copy: packets(nodes)
                .and_then(|packets| ratio(packets as f64, sum.expected)),
            is_paced: work.rate > 0.0,
            goodput_slowest: is_measured.then(|| goodputs.iter().copied().fold(f64::MAX, f64::min)),
            goodput_mean: is_measured.then(|| goodputs.iter().sum::<f64>() / goodputs.len() as f64),
            idle_cpu_percent: load::idle_cpu_percent(idle()),
            idle_packets_per_second: load::idle_packets_per_second(idle()),
        }
    }

    /// Returns `true` if every copy was delivered once, and nothing else.
    pub fn is_complete(&self) -> bool {
        self.missing == 0 && self.duplicates == 0 && self.unknown == 0
    }
}

/// Sums over the receivers.
#[derive(Default)]
struct Sum {
    expected: u64,
    delivered: u64,
    lost: u64,
    datagrams_dropped: u64,
    kept: Latencies,
    recovered: Latencies,
    unclassified: Latencies,
    from_kernel: Latencies,
}

impl Sum {
    fn add(&mut self, index: usize, nodes: &[Node], arrivals: &Arrivals, sent: &Sent) {
        let node = &nodes[index];
        self.datagrams_dropped += node.drops.datagrams();
        for (record, received_ns) in node.files.delivered.iter().zip(&node.files.received) {
            self.from_kernel.record(record.at_ns.saturating_sub(*received_ns));
        }
        let has_drops = |drops: Option<u64>| drops.is_some_and(|drops| drops > 0);
        let is_buffer_full = has_drops(node.kernel_drops);
        for (sender, number, sent_ns) in sent.all() {
            let is_own = sender == index;
            if is_own && !arrivals.has_any_of(sender) {
                continue;
            }
            self.expected += 1;
            let delivered = arrivals.first_ns(sender, number);
            let dropped = node.drops.first_ns(sender as u32, number as u32, sent_ns);
            let is_lost =
                dropped.is_some_and(|at| delivered.is_none_or(|delivered| at <= delivered));
            self.lost += u64::from(is_lost);
            let Some(delivered) = delivered else { continue };
            self.delivered += 1;
            if !is_own {
                // A multicast is dropped on the link of its sender or on that of a receiver.
                let is_link_full =
                    has_drops(node.link_drops) || has_drops(nodes[sender].link_drops);
                let latencies = match (is_lost, is_buffer_full || is_link_full) {
                    (true, _) => &mut self.recovered,
                    (false, true) => &mut self.unclassified,
                    (false, false) => &mut self.kept,
                };
                latencies.record(delivered.saturating_sub(sent_ns));
            }
        }
    }

    fn latency(&self) -> Latencies {
        let mut all = self.kept.clone();
        all.merge(&self.recovered);
        all.merge(&self.unclassified);
        all
    }
}

fn packets(nodes: &[Node]) -> Option<u64> {
    nodes.iter().filter(|node| node.receives).map(|node| node.packets).sum()
}

fn ratio(sum: f64, count: u64) -> Option<f64> {
    (count > 0).then(|| sum / count as f64)
}

#[cfg(test)]
mod tests;

//! `ricochet-13`: processor time per data packet, and its parts.

use serde::Deserialize;

use super::bed::check_list;
use super::experiment::Experiment;
use crate::cost::{CostOutcome, CostRun};
use crate::figure::{Axis, Figure};
use crate::lateral::Membership;
use crate::plan::{Fire, RunScale, Scaled};
use crate::relation::{Better, Relation};
use crate::report::Findings;
use crate::table::Table;
use crate::work::{Job, Outcome};

/// Settings in the plan.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RicochetCost {
    nodes: u32,
    rate_of_fire: Fire,
    mean_size: u32,
    groups_per_node: Scaled<Vec<u32>>,
    payload_bytes: usize,
    /// Number of packets in each round.
    packets: Scaled<u32>,
    /// Number of rounds. The fastest one counts.
    rounds: Scaled<u32>,
    /// Number of datagrams that a node receives per second. The waiting time is computed for it.
    datagrams_per_second: f64,
    /// Upper limit of the time per packet with the most groups, as a multiple of that with the
    /// fewest.
    at_most_times: f64,
    /// Reason why the time exceeds the limit, reported if it does.
    why_not: String,
    /// Time that the paper reports for 1024 groups.
    papers_us: f64,
}

impl RicochetCost {
    /// Returns the time that a datagram waits while others are processed. With random arrivals and
    /// a constant service time, it is the load times the service time, divided by twice the free
    /// capacity (Pollaczek and Khinchine).
    fn waiting_ns(&self, each_ns: f64) -> f64 {
        let load = self.datagrams_per_second * each_ns / 1e9;
        load * each_ns / (2.0 * (1.0 - load))
    }
}

impl Experiment for RicochetCost {
    fn check(&self) -> Result<(), String> {
        for quick in [false, true] {
            check_list("groups_per_node", self.groups_per_node.at(quick), 1, 1 << 12)?;
        }
        check_list("nodes", &[self.nodes], 2, 4096)?;
        check_list("mean_size", &[self.mean_size], 2, self.nodes)?;
        check_list("payload_bytes", &[self.payload_bytes], 8, 1024)
    }

    fn jobs(&self, scale: RunScale) -> Vec<Job> {
        let run = |d: &u32| {
            let (mean_size, rate) = (self.mean_size, self.rate_of_fire.0);
            Job::Cost(CostRun {
                nodes: self.nodes,
                membership: Membership::Random { groups_per_node: *d, mean_size, rate },
                payload_bytes: self.payload_bytes,
                packets: *self.packets.at(scale.quick),
                rounds: *self.rounds.at(scale.quick),
                seed: scale.seed,
            })
        };
        self.groups_per_node.at(scale.quick).iter().map(run).collect()
    }

    fn evaluate(&self, scale: RunScale, outcomes: &[&Outcome]) -> Findings {
        let swept = self.groups_per_node.at(scale.quick).iter().zip(outcomes);
        let points: Vec<(u32, &CostOutcome)> =
            swept.map(|(d, outcome)| (*d, outcome.cost())).collect();
        let mut table = Table::new(&[
            "groups_per_node",
            "bins",
            "shared_groups",
            "repairs_per_packet",
            "xors_per_packet",
        ]);
        let mut measured = Table::new(&[
            "groups_per_node",
            "all_ns",
            "accounting_ns",
            "bins_ns",
            "xor_ns",
            "waiting_ns",
        ]);
        for (d, cost) in &points {
            table.push(vec![
                u64::from(*d).into(),
                cost.bins.into(),
                cost.shared_groups.into(),
                cost.repairs_per_packet.into(),
                cost.xors_per_packet.into(),
            ]);
            measured.push(vec![
                u64::from(*d).into(),
                cost.ns.all.into(),
                cost.ns.accounting.into(),
                cost.ns.bins.into(),
                cost.ns.xor.into(),
                self.waiting_ns(cost.ns.all).into(),
            ]);
        }
        Findings {
            table,
            measured: Some(measured),
            figures: vec![self.figure(&points)],
            relations: self.relations(&points),
            better: points
                .last()
                .and_then(|(d, cost)| {
                    let what = format!("CPU time per data packet at d = {d}");
                    Better::if_lower(what, cost.ns.all / 1e3, self.papers_us, "us")
                })
                .into_iter()
                .collect(),
            notes: vec![
                "CPU time is measured on this machine and differs from run to run. The points are \
                 counts of work and do not differ."
                    .to_owned(),
                "Waiting is computed, not measured. The runtime passes a packet from the socket to \
                 the engine in one thread, so a packet waits only while others are handled."
                    .to_owned(),
            ],
        }
    }
}

impl RicochetCost {
    fn figure(&self, points: &[(u32, &CostOutcome)]) -> Figure {
        let line = |value: &dyn Fn(&CostOutcome) -> f64| {
            points.iter().map(|(d, cost)| (f64::from(*d), value(cost))).collect::<Vec<_>>()
        };
        let x = Axis::log("groups per node", 2.0);
        let y = Axis::linear("ns per data packet");
        Figure::new("cost", "CPU time per data packet received", x, y)
            .ours("total", line(&|cost| cost.ns.all))
            .ours("accounting", line(&|cost| cost.ns.accounting))
            .ours("bins", line(&|cost| cost.ns.bins))
            .ours("XOR", line(&|cost| cost.ns.xor))
            .ours("waiting, computed", line(&|cost| self.waiting_ns(cost.ns.all)))
    }

    fn relations(&self, points: &[(u32, &CostOutcome)]) -> Vec<Relation> {
        let (Some((few, first)), Some((many, last))) = (points.first(), points.last()) else {
            return Vec::new();
        };
        let claim = format!("CPU time at d = {many}, relative to d = {few}");
        let parts = |cost: &CostOutcome| {
            let ns = cost.ns;
            let parts = format!("{:.0} + {:.0} + {:.0}", ns.accounting, ns.bins, ns.xor);
            format!("{:.0} ns (accounting, bins, XOR: {parts})", ns.all)
        };
        let note = format!("{} relative to {}", parts(last), parts(first));
        let why_not = format!("{note}; {}", self.why_not);
        let times = last.ns.all / first.ns.all;
        let most = points.iter().map(|(_, cost)| cost.bins as f64 / cost.shared_groups as f64);
        let most = most.fold(f64::NEG_INFINITY, f64::max);
        vec![
            Relation::at_most(claim, times, self.at_most_times, "times")
                .noted(note)
                .because(&why_not),
            Relation::at_most("bins per group shared with another node", most, 1.0, "")
                .noted("bins exist only for chains of occupied regions"),
        ]
    }
}

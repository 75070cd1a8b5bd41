//! `ricochet-13`: processor time per data packet, and its parts.

use crate::cost::{CostOutcome, CostRun};
use crate::experiments::prelude::*;
use crate::lateral::Membership;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RicochetCost {
    nodes: u32,
    rate_of_fire: Fire,
    mean_size: u32,
    groups_per_node: Scaled<Vec<u32>>,
    payload_bytes: usize,
    packets: Scaled<u32>,
    rounds: Scaled<u32>,
    /// Number of datagrams that a node receives per second, for which the waiting time is computed.
    datagrams_per_second: f64,
    /// Upper limit of the time per packet with the most groups, relative to that with the fewest.
    at_most_times: f64,
    /// Upper limit of the time that each doubling of the groups adds in the upper half of the
    /// doublings, relative to the lower half. With logarithmic growth it is 1, with linear growth
    /// about 32.
    upper_half_at_most_times: f64,
    /// Number of groups that separates the halves.
    half: u32,
    papers: Papers,
}

/// Times that the paper reports, which are only shown.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Papers {
    few: (u32, f64),
    many: (u32, f64),
}

struct Point<'a> {
    d: u32,
    cost: &'a CostOutcome,
    waiting_ns: f64,
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
    fn figure_names(&self) -> &[&'static str] {
        &["cost"]
    }

    fn check(&self) -> Result<(), String> {
        self.groups_per_node.check("groups_per_node", 1, 1 << 12)?;
        check_list("nodes", &[self.nodes], 2, 4096)?;
        check_list("mean_size", &[self.mean_size], 2, self.nodes)?;
        check_list("payload_bytes", &[self.payload_bytes], 8, 1024)
    }

    fn jobs(&self, scale: RunScale) -> Vec<Job> {
        let run = |d: &u32| {
            let (mean_size, rate) = (self.mean_size, self.rate_of_fire.0);
            Job::new(CostRun {
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
        let points = swept.map(|(d, outcome)| {
            let cost: &CostOutcome = outcome.of();
            Point { d: *d, cost, waiting_ns: self.waiting_ns(cost.ns.all) }
        });
        let points: Vec<Point<'_>> = points.collect();
        let table = Rows(&points).table(
            1,
            &[
                ("groups_per_node", |it| it.d.into()),
                ("bins", |it| it.cost.bins.into()),
                ("shared_groups", |it| it.cost.shared_groups.into()),
                ("repairs_per_packet", |it| it.cost.repairs_per_packet.into()),
                ("xors_per_packet", |it| it.cost.xors_per_packet.into()),
            ],
        );
        let measured = Rows(&points).table(
            1,
            &[
                ("groups_per_node", |it| it.d.into()),
                ("all_ns", |it| it.cost.ns.all.into()),
                ("accounting_ns", |it| it.cost.ns.accounting.into()),
                ("bins_ns", |it| it.cost.ns.bins.into()),
                ("xor_ns", |it| it.cost.ns.xor.into()),
                ("waiting_ns", |it| it.waiting_ns.into()),
            ],
        );
        let better = points.last().and_then(|it| {
            let what = format!("CPU time per data packet at d = {}", it.d);
            Better::if_lower(what, it.cost.ns.all / 1e3, self.papers.many.1, "us")
        });
        Findings {
            table,
            measured: Some(measured),
            figures: vec![figure(&points)],
            relations: self.relations(&points),
            better: better.into_iter().collect(),
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

fn figure(points: &[Point<'_>]) -> Figure {
    let line = |value: fn(&Point<'_>) -> f64| {
        points.iter().map(|it| (f64::from(it.d), value(it))).collect::<Vec<_>>()
    };
    let x = Axis::log("groups per node", 2.0);
    let y = Axis::linear("ns per data packet");
    Figure::new("cost", "CPU time per data packet received", x, y)
        .ours("total", line(|it| it.cost.ns.all))
        .ours("accounting", line(|it| it.cost.ns.accounting))
        .ours("bins", line(|it| it.cost.ns.bins))
        .ours("XOR", line(|it| it.cost.ns.xor))
        .ours("waiting, computed", line(|it| it.waiting_ns))
}

impl RicochetCost {
    fn relations(&self, points: &[Point<'_>]) -> Vec<Relation> {
        let (Some(few), Some(many)) = (points.first(), points.last()) else {
            return Vec::new();
        };
        let claim = format!("CPU time at d = {}, relative to d = {}", many.d, few.d);
        let parts = |it: &Point<'_>| {
            let ns = it.cost.ns;
            let parts = format!("{:.0} + {:.0} + {:.0}", ns.accounting, ns.bins, ns.xor);
            format!("{:.0} ns (accounting, bins, XOR: {parts})", ns.all)
        };
        let Papers { few: (few_d, few_us), many: (many_d, many_us) } = self.papers;
        let note = format!(
            "{} relative to {}; the paper's whole program takes {many_us} us at d = {many_d} and \
             {few_us} us at d = {few_d}, {:.1} times",
            parts(many),
            parts(few),
            many_us / few_us
        );
        let times = many.cost.ns.all / few.cost.ns.all;
        let half = points.iter().find(|it| it.d == self.half);
        let per_doubling = |from: &Point<'_>, to: &Point<'_>| {
            (to.cost.ns.all - from.cost.ns.all) / libm::log2(f64::from(to.d) / f64::from(from.d))
        };
        // A difference and not a ratio, because a small lower half makes a ratio meaningless.
        let factor = self.upper_half_at_most_times;
        let excess = half
            .map_or(f64::NAN, |half| per_doubling(half, many) - factor * per_doubling(few, half));
        let claim_growth = format!(
            "CPU time added by a doubling of d above {0}, minus {factor} times that below {0}",
            self.half
        );
        vec![
            Relation::at_most(claim, times, self.at_most_times, "times").noted(note),
            Relation::at_most(claim_growth, excess, 0.0, "ns")
                .noted("with logarithmic growth both are equal"),
        ]
    }
}

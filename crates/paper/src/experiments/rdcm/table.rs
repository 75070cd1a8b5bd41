//! `rdcm-table1`: repairs, requests, duplicates, work, traffic and delay of five protocols.

use carom_proto::loss::Loss;

use super::bed::Bed;
use crate::cluster::{BulkOutcome, BulkRun, Protocol, Setting};
use crate::experiments::prelude::*;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RdcmTable {
    bed: Bed,
    protocols: Vec<Protocol>,
    packets: Scaled<u32>,
    loss: Share,
    mean_burst: f64,
    found_after: Span,
    holds: Holds,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Holds {
    /// Repairs by RDCM to receivers that had not lost the packet, relative to all its repairs.
    rdcm_astray_at_most_percent: f64,
    /// Nodes that request one packet from one node, relative to the number of receivers.
    requesters_at_most_percent: f64,
    /// Nodes of RDCM that report one packet as missing to one node, beyond the ports of a switch:
    /// the successors in the leaf ring and in the proxy ring (section 3.3).
    rdcm_requesters_beyond_ports: f64,
    /// Further repairs at receivers, relative to losses, with one repairer per packet.
    again_at_most_percent: f64,
    /// Largest number of other nodes to which one node of RDCM sends repairs of a packet.
    rdcm_served_at_most: f64,
    /// Largest number of nodes to which one node of LBRM repairs a packet, relative to that of
    /// RDCM.
    lbrm_served_at_least_times: f64,
    /// Further repairs at receivers of SRM, relative to losses.
    srm_again_at_most_percent: Scaled<f64>,
}

/// Limits that depend on the network.
#[derive(Clone, Copy)]
struct Limits {
    rdcm_requesters: f64,
    srm_again_percent: f64,
}

struct Row<'a> {
    protocol: Protocol,
    outcome: &'a BulkOutcome,
}

fn astray(row: &Row<'_>) -> f64 {
    let counts = &row.outcome.counts;
    100.0 * counts.repairs_astray as f64 / counts.repairs as f64
}

fn again(row: &Row<'_>) -> f64 {
    let counts = &row.outcome.counts;
    100.0 * counts.repairs_again as f64 / counts.lost as f64
}

fn requesters(row: &Row<'_>) -> f64 {
    row.outcome.counts.most_requesters as f64
}

fn requesters_percent(row: &Row<'_>) -> f64 {
    100.0 * requesters(row) / f64::from(row.outcome.receivers)
}

/// Returns the mean number of repairs of a packet by a node that repairs it.
fn copies(row: &Row<'_>) -> f64 {
    let counts = &row.outcome.counts;
    counts.copies as f64 / counts.repaired_by_nodes as f64
}

/// Returns the largest number of nodes to which one node repairs a packet, which is the paper's
/// individual burden. All multicasts of a packet count as one.
fn served(row: &Row<'_>) -> f64 {
    row.outcome.counts.most_served as f64
}

fn traffic(row: &Row<'_>) -> f64 {
    let footprint = &row.outcome.footprint;
    100.0 * footprint.repairs as f64 / footprint.data as f64
}

fn value(rows: &[Row<'_>], protocol: Protocol, of: fn(&Row<'_>) -> f64) -> f64 {
    rows.iter().find(|row| row.protocol == protocol).map_or(f64::NAN, of)
}

/// Returns the largest value and its protocol. The NaN of a protocol that was not run counts as the
/// maximum, so that the relation fails.
fn most(rows: &[Row<'_>], among: &[Protocol], of: fn(&Row<'_>) -> f64) -> (f64, &'static str) {
    highest(among.iter().map(|protocol| (value(rows, *protocol, of), protocol.name())))
}

fn under(claim: &str, (measured, which): (f64, &str), limit: f64, unit: &'static str) -> Relation {
    Relation::at_most(claim, measured, limit, unit).noted(which)
}

fn relations(rows: &[Row<'_>], holds: &Holds, limits: Limits) -> Vec<Relation> {
    use Protocol::{Lbrm, Rdcm, Rmtp, Srm, Tmtp};
    let over = |claim: &str, protocol, others: &[Protocol], of: fn(&Row<'_>) -> f64| {
        let (other, which) = most(rows, others, of);
        Relation::at_least(claim, value(rows, protocol, of) / other, 1.0, "times").noted(which)
    };
    let of_rdcm = |of: fn(&Row<'_>) -> f64| (value(rows, Rdcm, of), "");
    let all = [Srm, Lbrm, Tmtp, Rmtp, Rdcm];
    let others = [Lbrm, Tmtp, Rmtp, Rdcm];
    let mut relations = vec![
        under(
            "repair isolation of RDCM: misdirected repairs",
            of_rdcm(astray),
            holds.rdcm_astray_at_most_percent,
            "% of repairs",
        ),
        over("misdirected repairs: TMTP relative to LBRM and RMTP", Tmtp, &[Lbrm, Rmtp], astray),
        over("misdirected repairs: SRM relative to others", Srm, &others, astray),
        under(
            "request implosion: nodes that request one packet from one node",
            most(rows, &all, requesters_percent),
            holds.requesters_at_most_percent,
            "% of the receivers",
        ),
        under(
            "request implosion: nodes of RDCM that report one packet as missing to one node",
            of_rdcm(requesters),
            limits.rdcm_requesters,
            "nodes",
        ),
        under(
            "duplicates of all but SRM: further repairs",
            most(rows, &others, again),
            holds.again_at_most_percent,
            "% of the losses",
        ),
        over("duplicates: SRM relative to others", Srm, &others, again),
        under(
            "duplicates of SRM: further repairs",
            (value(rows, Srm, again), ""),
            limits.srm_again_percent,
            "% of the losses",
        ),
    ];
    relations.extend(burden(rows, holds));
    relations.extend([
        over("repair traffic: SRM relative to others", Srm, &others, traffic),
        over("repair latency: SRM relative to others", Srm, &others, |row| {
            row.outcome.delays.mean_ms()
        }),
    ]);
    relations
}

/// Returns the relations for the number of nodes to which one node repairs a packet.
fn burden(rows: &[Row<'_>], holds: &Holds) -> [Relation; 3] {
    use Protocol::{Lbrm, Rdcm, Srm, Tmtp};
    let of_rdcm = value(rows, Rdcm, served);
    [
        under(
            "individual burden: nodes to which one node of RDCM repairs a packet",
            (of_rdcm, ""),
            holds.rdcm_served_at_most,
            "nodes",
        ),
        under(
            "individual burden: nodes to which one node of SRM or TMTP repairs a packet",
            most(rows, &[Srm, Tmtp], served),
            ONE_MULTICAST,
            "nodes",
        ),
        Relation::at_least(
            "individual burden: LBRM relative to RDCM",
            value(rows, Lbrm, served) / of_rdcm,
            holds.lbrm_served_at_least_times,
            "times",
        ),
    ]
}

fn figure(rows: &[Row<'_>]) -> Figure {
    let x = Axis::log("milliseconds after the multicast", 10.0).spanning(1e-2, 1e3);
    let y = Axis::linear("lost packets repaired, %").spanning(0.0, 105.0);
    let mut figure = Figure::new("latency", "Delivery of lost packets", x, y);
    for row in rows {
        let delays = &row.outcome.delays;
        let point = |step: i32| {
            let ms = 1e-2 * libm::exp(f64::from(step) * 0.1);
            (ms, 100.0 * delays.up_to_ms(ms) as f64 / row.outcome.counts.lost as f64)
        };
        let points = (0..=115).map(point).collect();
        figure = figure.with(row.protocol.name(), Kind::Ours, Shape::Curve, points);
    }
    figure
}

impl Experiment for RdcmTable {
    fn figure_names(&self) -> &[&'static str] {
        &["latency"]
    }

    fn check(&self) -> Result<(), String> {
        self.bed.check()?;
        self.packets.check_value("packets", 1, 1 << 16)?;
        check_list("loss", &[self.loss.0], 1e-6, 0.5)?;
        check_list("mean_burst", &[self.mean_burst], 1.0, 1000.0)?;
        check_list("protocols", &self.protocols, Protocol::Srm, Protocol::Rdcm)
    }

    fn jobs(&self, scale: RunScale) -> Vec<Job> {
        let loss = Loss::Markov { rate: self.loss.0, mean_burst: self.mean_burst };
        let detect_after = self.found_after.0;
        let job = |protocol: &Protocol| {
            let setting = Setting { loss, detect_after, ..self.bed.setting(scale) };
            let packets = *self.packets.at(scale.quick);
            Job::new(BulkRun { setting, protocol: *protocol, packets, changes: 0 })
        };
        self.protocols.iter().map(job).collect()
    }

    fn evaluate(&self, scale: RunScale, outcomes: &[&Outcome]) -> Findings {
        let rows = self.protocols.iter().zip(outcomes);
        let rows = rows.map(|(it, outcome)| Row { protocol: *it, outcome: outcome.of() });
        let rows: Vec<Row<'_>> = rows.collect();
        let table = Rows(&rows).table(
            1,
            &[
                ("protocol", |row| row.protocol.name().into()),
                ("lost", |row| row.outcome.counts.lost.into()),
                ("repairs_received", |row| row.outcome.counts.repairs.into()),
                ("repairs_to_who_had_it_percent", |row| astray(row).into()),
                ("repairs_again_percent_of_losses", |row| again(row).into()),
                ("most_requests_for_a_packet_at_a_node", |row| {
                    row.outcome.counts.most_requests.into()
                }),
                ("most_requesters_of_a_packet_at_a_node", |row| requesters(row).into()),
                ("most_control_datagrams_at_a_node", |row| row.outcome.counts.most_control.into()),
                ("repairs_of_a_packet_by_a_node_mean", |row| copies(row).into()),
                ("repairs_of_a_packet_by_a_node_most", |row| row.outcome.counts.most_copies.into()),
                ("nodes_repaired_for_a_packet_by_a_node_most", |row| {
                    row.outcome.counts.most_served.into()
                }),
                ("repairs_percent_of_data_on_links", |row| traffic(row).into()),
                ("repair_delay_mean_ms", |row| row.outcome.delays.mean_ms().into()),
                ("repair_delay_p99_ms", |row| row.outcome.delays.quantile_ms(0.99).into()),
                ("repair_delay_max_ms", |row| row.outcome.delays.quantile_ms(1.0).into()),
            ],
        );
        let ports = f64::from(self.bed.setting(scale).ports);
        let limits = Limits {
            rdcm_requesters: ports + self.holds.rdcm_requesters_beyond_ports,
            srm_again_percent: *self.holds.srm_again_at_most_percent.at(scale.quick),
        };
        let (figures, relations) = (vec![figure(&rows)], relations(&rows, &self.holds, limits));
        Findings { table, figures, relations, notes: vec![NOTE.to_owned()], ..Findings::default() }
    }
}

/// Number of repairs that a node sends if it multicasts them (section 6).
const ONE_MULTICAST: f64 = 1.0;
const NOTE: &str = "A packet is lost at a receiver that its multicast does not reach. A repair is \
                    misdirected if its receiver had not lost the packet. All values are counted \
                    at the nodes, from the datagrams that they send and receive, not from the \
                    engines' counters. Repairs can be lost as well, so some are repeated.";

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;

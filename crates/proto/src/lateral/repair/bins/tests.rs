use alloc::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::lateral::config::RepairScope;
use crate::lateral::packet::symbol::Arena;
use crate::lateral::repair::chain::tests::{
    Memberships, Selections, compare, papers_example, selections_of,
};
use crate::{GroupId, Rng, SeqNo};
use proptest::prelude::*;

const OWN: NodeId = NodeId(1000);

type Sent = Vec<(Vec<NodeId>, Vec<(GroupIx, u32)>)>;

struct Rig {
    bins: Bins,
    symbol: Symbol,
    sent: Sent,
    next: u32,
}

impl Rig {
    fn new(scope: RepairScope, stagger: u8, flush_after: Option<Duration>, r: u8) -> Self {
        Self::with(&Config { scope, stagger, flush_after, ..Config::default() }, r)
    }

    fn with(config: &Config, r: u8) -> Self {
        let mut bins = Bins::new(config, Rng::new(5));
        bins.set_r(r);
        let symbol = Symbol::of_message(&mut Arena::default(), Time(0), None, b"x");
        Self { bins, symbol, sent: Vec::new(), next: 0 }
    }

    fn with_group(mut self, group: GroupIx, c: u8, nodes: impl IntoIterator<Item = u64>) -> Self {
        self.bins.set_c(group, c);
        nodes.into_iter().for_each(|node| self.bins.add_node(NodeId(node), group));
        self
    }

    /// Accepts a packet. Packets are numbered across all groups, in order of arrival.
    fn accept(&mut self, now: Time, group: GroupIx) {
        self.next += 1;
        let id = PacketId { sender: OWN, group: GroupId(group.0), seqno: SeqNo(self.next) };
        let sent = &mut self.sent;
        self.bins.accept(now, group, id, &self.symbol, |repair| record(sent, &repair));
        if self.next < 100 || self.next.is_multiple_of(101) {
            self.bins.check();
        }
    }

    fn flush(&mut self, now: Time) {
        let sent = &mut self.sent;
        self.bins.flush_due(now, |repair| record(sent, &repair));
        self.bins.check();
    }

    /// Returns the number of copies of packets of `group` that bins owe. An owed target stands for
    /// a batch of r packets, of which each of the bin's groups has an equal share.
    fn owed(&self, group: GroupIx) -> f64 {
        let batches =
            self.bins.lanes.iter().flat_map(|lane| lane.batches.iter().zip(&self.bins.bins));
        let of_group = batches.filter(|(_, bin)| bin.regions > 0 && bin.groups.contains(&group));
        let owed = of_group.map(|(batch, bin)| {
            let targets: f64 = batch.sources.iter().map(|source| source.owed).sum();
            targets * f64::from(self.bins.r) / bin.groups.len() as f64
        });
        owed.sum()
    }

    fn copies(&self, group: GroupIx) -> BTreeMap<u32, Vec<NodeId>> {
        let mut copies: BTreeMap<u32, Vec<NodeId>> = BTreeMap::new();
        for (targets, packets) in &self.sent {
            for (_, number) in packets.iter().filter(|(of, _)| *of == group) {
                copies.entry(*number).or_default().extend(targets);
            }
        }
        copies
    }
}

fn named(id: PacketId) -> (GroupIx, u32) {
    (GroupIx(id.group.0), id.seqno.0)
}

fn record(sent: &mut Sent, repair: &Repair<'_>) {
    let targets = repair.targets.iter().map(|(_, node)| *node).collect();
    let packets = repair.ids.iter().map(|id| PacketId::from(*id)).map(named).collect();
    sent.push((targets, packets));
}

const A: GroupIx = GroupIx(0);
const B: GroupIx = GroupIx(1);
const C: GroupIx = GroupIx(2);

#[test]
fn repairs_that_a_change_cuts_short_are_counted_and_no_others() {
    let mut rig = Rig::new(RepairScope::PerGroup, 2, None, 8).with_group(A, 5, 1..=20);
    (0..80).for_each(|_| rig.accept(Time(0), A));
    rig.bins.remove_node(NodeId(20), A);
    let full: usize = rig.sent.iter().map(|(targets, _)| targets.len()).sum();
    assert_eq!((full, rig.bins.counts.cut_short), (50, 0));
    (0..3).for_each(|_| rig.accept(Time(0), A));
    assert_eq!(rig.bins.counts.cut_short, 0, "no batch had a packet");
    rig.bins.remove_node(NodeId(19), A);
    rig.accept(Time(0), A);
    let all: usize = rig.sent.iter().map(|(targets, _)| targets.len()).sum();
    let short = rig.sent.iter().filter(|(_, packets)| packets.len() < 8);
    assert_eq!(short.map(|(targets, _)| targets.len()).sum::<usize>(), all - full);
    assert_eq!(rig.bins.counts.cut_short, (all - full) as u64);
    assert!(all > full);
}

#[test]
fn a_full_bin_goes_to_c_different_nodes_of_its_group() {
    let mut rig = Rig::new(RepairScope::PerGroup, 1, None, 8).with_group(A, 5, 1..=20);
    (0..80).for_each(|_| rig.accept(Time(0), A));
    assert_eq!(rig.sent.len(), 10);
    for (targets, packets) in &rig.sent {
        let mut distinct = targets.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!((targets.len(), distinct.len(), packets.len()), (5, 5, 8));
    }
}

#[test]
fn a_bin_that_drew_no_target_takes_no_packet() {
    let mut rig =
        Rig::new(RepairScope::Regions, 1, None, 4).with_group(A, 1, 1..=10).with_group(B, 1, 1..=1);
    for _ in 0..4_000 {
        rig.accept(Time(0), A);
    }
    let batches: usize = rig.sent.iter().map(|(targets, _)| targets.len().min(1)).sum();
    assert_eq!(rig.sent.len(), batches, "only batches with targets are sent");
}

#[test]
fn stagger_spreads_a_burst_over_as_many_repairs() {
    let mut rig = Rig::new(RepairScope::PerGroup, 3, None, 2).with_group(A, 2, 1..=4);
    (0..12).for_each(|_| rig.accept(Time(0), A));
    let numbers: Vec<Vec<u32>> =
        rig.sent.iter().map(|(_, packets)| packets.iter().map(|(_, n)| *n).collect()).collect();
    assert_eq!(numbers, [[1, 4], [2, 5], [3, 6], [7, 10], [8, 11], [9, 12]]);
}

#[test]
fn partly_filled_bin_is_flushed_when_its_oldest_packet_is_due() {
    let after = Duration::from_millis(30);
    let mut rig = Rig::new(RepairScope::PerGroup, 1, Some(after), 8).with_group(A, 3, 1..=9);
    rig.accept(Time(1_000), A);
    rig.accept(Time(2_000), A);
    let due = rig.bins.next_flush().expect("a packet waits");
    assert_eq!(due, Time(1_000) + after);
    rig.flush(Time(due.0 - 1));
    assert!(rig.sent.is_empty());
    rig.flush(due);
    assert_eq!(rig.sent.len(), 1);
    assert_eq!(rig.sent[0].1, [(A, 1), (A, 2)]);
    assert_eq!(rig.bins.next_flush(), None);
    (0..8).for_each(|_| rig.accept(Time(3_000), A));
    assert_eq!(rig.bins.next_flush(), None, "a bin that went out full is not waited for");
}

#[test]
fn packets_in_a_bin_that_disappears_are_sent_not_dropped() {
    let mut rig =
        Rig::new(RepairScope::Regions, 1, None, 8).with_group(A, 4, 1..=4).with_group(B, 4, 1..=4);
    (0..3).for_each(|_| rig.accept(Time(0), A));
    (1..=4).for_each(|node| rig.bins.remove_node(NodeId(node), B));
    rig.bins.remove_node(NodeId(4), A);
    rig.accept(Time(0), A);
    let (targets, packets) = &rig.sent[0];
    assert_eq!(packets, &[(A, 1), (A, 2), (A, 3)]);
    let mut targets = targets.clone();
    targets.sort_unstable();
    assert_eq!(targets, [1, 2, 3].map(NodeId), "a node that left all groups gets nothing");
}

#[test]
fn a_change_elsewhere_leaves_a_bin_alone() {
    let mut rig = Rig::new(RepairScope::Regions, 1, None, 8).with_group(A, 3, 1..=3).with_group(
        B,
        3,
        11..=13,
    );
    (0..7).for_each(|_| rig.accept(Time(0), A));
    rig.bins.add_node(NodeId(14), B);
    rig.accept(Time(0), B);
    assert!(rig.sent.is_empty());
    rig.accept(Time(0), A);
    assert_eq!(rig.sent[0].1.len(), 8);
}

fn run(memberships: &[(u64, u32)], cs: &[u8], stagger: u8, packets: usize) -> (Rig, Vec<Copies>) {
    let mut rig = Rig::new(RepairScope::Regions, stagger, None, 4);
    cs.iter().zip(0..).for_each(|(c, group)| rig.bins.set_c(GroupIx(group), *c));
    for (node, group) in memberships {
        rig.bins.add_node(NodeId(*node), GroupIx(*group));
    }
    let mut rng = Rng::new(9);
    let mut numbers = vec![Vec::new(); cs.len()];
    for _ in 0..packets {
        let group = rng.below(cs.len());
        rig.accept(Time(0), GroupIx(group as u32));
        numbers[group].push(rig.next);
    }
    let copies = numbers.iter().zip((0..).map(GroupIx)).map(|(numbers, group)| {
        let copies = rig.copies(group);
        let of_packet = numbers.iter().map(|number| copies.get(number).map_or(0, Vec::len) as f64);
        Copies { owed: rig.owed(group), of_packet: of_packet.collect() }
    });
    let copies = copies.collect();
    (rig, copies)
}

struct Copies {
    of_packet: Vec<f64>,
    owed: f64,
}

impl Copies {
    fn mean(&self) -> f64 {
        (self.of_packet.iter().sum::<f64>() + self.owed) / self.of_packet.len() as f64
    }

    /// Returns the standard error of the mean, calculated from the means of 100 runs of packets.
    /// Copies of successive packets are correlated, because they share batches and debts.
    fn standard_error(&self) -> f64 {
        let run = self.of_packet.len() / 100;
        let runs = self.of_packet.chunks_exact(run);
        let means: Vec<f64> = runs.map(|run| run.iter().sum::<f64>() / run.len() as f64).collect();
        let count = means.len() as f64;
        let mean = means.iter().sum::<f64>() / count;
        let variance =
            means.iter().map(|it| (it - mean) * (it - mean)).sum::<f64>() / (count - 1.0);
        (variance / count).sqrt()
    }
}

fn few_cases() -> ProptestConfig {
    let asked = std::env::var_os("PROPTEST_CASES").is_some();
    if asked { ProptestConfig::default() } else { ProptestConfig::with_cases(24) }
}

proptest! {
    #![proptest_config(few_cases())]

    /// The guarantees of section 3 for random memberships. If no group of the node sends each
    /// packet to more than four fifths of its members, duplicate copies are rare. The tolerance is
    /// six standard errors of the mean, plus a copy of every hundredth packet for cases in which
    /// the number of copies hardly varies.
    #[test]
    fn a_packet_goes_to_c_members_on_average_and_hardly_ever_twice(
        memberships in prop::collection::vec((0..24_u64, 0..4_u32), 40..90),
        cs in prop::collection::vec(1..5_u8, 4),
        stagger in 1..4_u8,
    ) {
        assert_mean_and_repeats(&memberships, &cs, stagger)?;
    }
}

fn assert_mean_and_repeats(
    memberships: &[(u64, u32)],
    cs: &[u8],
    stagger: u8,
) -> Result<(), TestCaseError> {
    let (rig, copies) = run(memberships, cs, stagger, 40_000);
    let size = |group: usize| {
        let of_group = |(_, other): &&(u64, u32)| *other == group as u32;
        memberships.iter().filter(of_group).collect::<BTreeSet<_>>().len()
    };
    for (group, copies) in copies.iter().enumerate() {
        let target = size(group).min(usize::from(cs[group])) as f64;
        let (mean, tolerance) = (copies.mean(), 6.0 * copies.standard_error() + 0.01);
        prop_assert!((mean - target).abs() <= tolerance, "{group}: {mean} of {target}");
    }
    let (copies, repeats) = copies_and_repeats(&rig, cs.len());
    let leaves_room = |group| usize::from(cs[group]) * 10 <= size(group) * 8;
    let limit = if (0..cs.len()).all(leaves_room) { 0.01 } else { 0.05 };
    let share = repeats as f64 / copies.max(1) as f64;
    prop_assert!(share <= limit, "{repeats} of {copies} copies are second ones");
    Ok(())
}

fn copies_and_repeats(rig: &Rig, groups: usize) -> (usize, usize) {
    let (mut copies, mut repeats) = (0, 0);
    for group in (0..groups as u32).map(GroupIx) {
        for (_, targets) in rig.copies(group) {
            let distinct: BTreeSet<NodeId> = targets.iter().copied().collect();
            copies += targets.len();
            repeats += targets.len() - distinct.len();
        }
    }
    (copies, repeats)
}

/// Regression: without owed targets, a group with 3 to 5 targets got 0.13 targets too few here.
#[test]
fn the_mean_holds_in_groups_that_overlap_unequally() -> Result<(), TestCaseError> {
    #[rustfmt::skip]
    const MEMBERSHIPS: [(u64, u32); 40] = [
        (18, 3), (22, 1), (1, 1), (16, 2), (7, 3), (22, 3), (21, 1), (1, 2), (2, 2), (14, 2),
        (11, 1), (11, 3), (9, 3), (23, 1), (9, 3), (3, 1), (23, 2), (8, 0), (4, 3), (5, 3),
        (20, 2), (20, 3), (0, 1), (1, 1), (4, 1), (7, 1), (8, 3), (21, 2), (15, 1), (9, 1),
        (23, 2), (16, 3), (14, 0), (5, 0), (4, 3), (14, 1), (12, 0), (7, 1), (20, 3), (17, 3),
    ];
    assert_mean_and_repeats(&MEMBERSHIPS, &[4, 2, 3, 3], 2)
}

/// Regression: a test found 2.891 copies instead of 3 in group 2, where the number of copies varies
/// more. It assumed independent draws and ignored owed copies.
#[test]
fn the_mean_holds_in_a_group_that_wants_three_of_four_members() -> Result<(), TestCaseError> {
    #[rustfmt::skip]
    const MEMBERSHIPS: [(u64, u32); 37] = [
        (1, 2), (3, 3), (1, 1), (11, 1), (11, 0), (8, 1), (15, 1), (14, 1), (9, 3), (0, 0),
        (22, 3), (7, 0), (9, 1), (23, 2), (6, 3), (7, 3), (4, 0), (10, 1), (16, 3), (12, 0),
        (22, 0), (4, 1), (1, 0), (2, 3), (19, 2), (2, 0), (5, 1), (0, 3), (20, 1), (19, 1),
        (1, 3), (2, 1), (12, 2), (12, 1), (7, 1), (13, 1), (23, 0),
    ];
    assert_mean_and_repeats(&MEMBERSHIPS, &[2, 3, 3, 3], 2)
}

#[test]
fn independent_batches_reach_c_members_but_some_of_them_twice() {
    let config = Config { exclusive_targets: false, ..Config::default() };
    let mut rig = Rig::with(&config, 4).with_group(A, 3, 1..=6).with_group(B, 2, 4..=9);
    (0..20_000).for_each(|packet| rig.accept(Time(0), if packet % 3 == 0 { B } else { A }));
    for (group, c) in [(A, 3.0), (B, 2.0)] {
        let copies = rig.copies(group);
        let mean = copies.values().map(Vec::len).sum::<usize>() as f64 / copies.len() as f64;
        assert!((mean - c).abs() < 0.05, "{group:?}: {mean} of {c}");
        assert_eq!(rig.owed(group), 0.0);
    }
    let (copies, repeats) = copies_and_repeats(&rig, 2);
    assert!(repeats * 50 > copies, "{repeats} of {copies} copies are second ones");
    assert_eq!((rig.bins.counts.targets_short, rig.bins.counts.targets_shared), (0, 0));
}

#[test]
fn the_papers_example_keeps_both_guarantees() {
    let memberships: Vec<(u64, u32)> =
        papers_example().into_iter().map(|(node, group)| (node.0, group.0)).collect();
    let (rig, copies) = run(&memberships, &[5, 4, 3], 1, 40_000);
    for (mean, c) in copies.iter().map(Copies::mean).zip([5.0, 4.0, 3.0]) {
        assert!((mean - c).abs() < 0.05, "{mean} of {c}");
    }
    // The shares of the regions are those of figure 6: 2.5 of A's five targets are in abc.
    let in_abc = rig.copies(A).values().flatten().filter(|node| node.0 > 23).count();
    let share = in_abc as f64 / rig.copies(A).len() as f64;
    assert!((share - 2.5).abs() < 0.1, "{share}");
}

fn selections(bins: &Bins) -> Selections {
    let mut all = BTreeMap::new();
    for (links, region) in bins.of_region.iter().zip((0..).map(RegionIx)) {
        let groups: Vec<GroupIx> = bins.regions.shares(region).map(|(group, _)| group).collect();
        for (_, bin) in links {
            let record = &bins.bins[bin.0 as usize];
            for lane in &bins.lanes {
                let sources = &lane.batches[bin.0 as usize].sources;
                let mut of_region = sources.iter().filter(|source| source.region == region);
                let source = of_region.next().expect("the bin serves the region");
                assert!(of_region.next().is_none(), "a bin serves a region once");
                let place = (record.groups.clone(), groups.clone());
                let before = all.insert(place, source.targets);
                assert!(before.is_none_or(|other| other == source.targets), "lanes differ");
            }
        }
    }
    all
}

/// Makes random changes with occasional packets. After each burst of packets, checks that the bins
/// select as the memberships require. Returns the rig with everything that was sent.
fn churn(
    changes: &[(u64, u32, u32)],
    cs: &[u8],
    scope: RepairScope,
    stagger: u8,
    every: usize,
) -> Rig {
    let mut rig = Rig::new(scope, stagger, None, 4);
    cs.iter().zip(0..).for_each(|(c, group)| rig.bins.set_c(GroupIx(group), *c));
    let mut memberships = Memberships::new();
    for (count, (node, group, kind)) in changes.iter().enumerate() {
        let (node, group) = (NodeId(*node), GroupIx(*group));
        if *kind > 0 {
            rig.bins.add_node(node, group);
            memberships.entry(node).or_default().insert(group);
        } else {
            rig.bins.remove_node(node, group);
            memberships.entry(node).or_default().remove(&group);
        }
        if count % every == 0 {
            for packet in 0..count % 4 + 1 {
                rig.accept(Time(0), GroupIx((count + packet) as u32 % cs.len() as u32));
            }
            rig.bins.check();
            let c_of = |group: GroupIx| cs[group.0 as usize];
            compare(&selections(&rig.bins), &selections_of(&memberships, scope, c_of));
        }
    }
    rig
}

fn assert_no_packet_twice(rig: &Rig, groups: usize, r: usize) {
    let (_, repeats) = copies_and_repeats(rig, groups);
    let shared = rig.bins.counts.targets_shared as usize;
    assert!(repeats <= shared * r, "{repeats} second copies from {shared} shared targets");
}

proptest! {
    /// Few groups, in which regions have several nodes and share bins.
    #[test]
    fn bins_that_follow_changes_are_those_made_from_scratch(
        changes in prop::collection::vec((0..12_u64, 0..5_u32, 0..3_u32), 1..150),
        cs in prop::collection::vec(0..6_u8, 5),
        scope in prop::sample::select(vec![RepairScope::Regions, RepairScope::PerGroup]),
        stagger in 1..4_u8,
        every in 1..5_usize,
    ) {
        let rig = churn(&changes, &cs, scope, stagger, every);
        assert_no_packet_twice(&rig, 5, 4);
    }

    /// Many groups, in which every node has its own region, and every bin serves one region.
    #[test]
    fn bins_of_nodes_in_many_groups_are_those_made_from_scratch(
        changes in prop::collection::vec((0..10_u64, 0..60_u32, 0..5_u32), 200..500),
        cs in prop::collection::vec(1..6_u8, 60),
        stagger in 1..3_u8,
        every in 1..5_usize,
    ) {
        let rig = churn(&changes, &cs, RepairScope::Regions, stagger, every);
        assert_no_packet_twice(&rig, 60, 4);
    }
}

#[test]
fn a_fill_stays_open_where_another_bin_of_its_region_changes() {
    // Half of node 1's packets of A come from a bin of A, and half from a bin of A, B and C.
    let mut rig = Rig::new(RepairScope::Regions, 1, None, 8)
        .with_group(A, 1, [1])
        .with_group(B, 1, 1..=2)
        .with_group(C, 1, [1, 3]);
    let held = |rig: &Rig| {
        let bin = rig.bins.bins.iter().position(|bin| bin.groups == [A]);
        bin.map_or(0, |bin| rig.bins.lanes[0].batches[bin].ids.len())
    };
    while held(&rig) != 2 {
        rig.accept(Time(0), A);
    }
    let before = rig.sent.len();
    rig.bins.add_node(NodeId(4), C);
    rig.accept(Time(0), A);
    assert_eq!((held(&rig), rig.sent.len()), (3, before));
}

#[test]
fn a_fill_of_a_bin_that_loses_a_group_is_sent_as_it_is() {
    let mut rig =
        Rig::new(RepairScope::Regions, 1, None, 8).with_group(A, 1, 1..=1).with_group(B, 1, 1..=1);
    (0..3).for_each(|_| rig.accept(Time(0), A));
    rig.bins.remove_node(NodeId(1), A);
    rig.accept(Time(0), B);
    assert_eq!(rig.sent, [(vec![NodeId(1)], vec![(A, 1), (A, 2), (A, 3)])]);
    (0..7).for_each(|_| rig.accept(Time(0), B));
    assert_eq!(rig.sent[1].1.len(), 8, "the next batch holds what came since");
    // A bin that only gains a group keeps its batch.
    (0..3).for_each(|_| rig.accept(Time(0), B));
    rig.bins.add_node(NodeId(1), A);
    (0..5).for_each(|_| rig.accept(Time(0), A));
    let numbers: Vec<u32> = rig.sent[2].1.iter().map(|(_, number)| *number).collect();
    assert_eq!(numbers, [12, 13, 14, 15, 16, 17, 18, 19]);
}

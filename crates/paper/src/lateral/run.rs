use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use carom_proto::lateral::{Config, Lateral, NakConfig, RepairScope, StreamStart};
use carom_proto::loss::Loss;
use carom_proto::{
    Class, Engine, GroupSettings, NodeId, Profile, RateOfFire, Rng, Time, ViewChange,
    ViewChangeKind,
};
use carom_sim::{HostIx, PerClass, World, WorldConfig};
use serde::Deserialize;

use super::churn::{Churn, Plan};
use super::ledger::{GroupOutcome, Ledger};
use super::member::Member;
use super::membership::{Groups, Membership, group_id, node_id};
use super::sending::Sending;
use super::stays::BEGINNING;
use crate::network::Wiring;
use crate::work::{Env, Run};

/// A run of the lateral engine. Equal runs have equal outcomes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LateralRun {
    pub(crate) wiring: Wiring,
    pub(crate) membership: Membership,
    pub(crate) churn: Option<Churn>,
    /// Interval between two messages of a node. Each is sent to one of its groups at random.
    pub(crate) interval: Duration,
    pub(crate) payload_bytes: usize,
    /// Loss of each host on receipt, of data and repairs alike.
    pub(crate) loss: Loss,
    pub(crate) stagger: u8,
    /// Number of nodes in a partial view, including the node itself. `None` is the full view.
    pub(crate) view: Option<u32>,
    pub(crate) nak: bool,
    pub(crate) variant: Variant,
    pub(crate) scope: RepairScope,
    pub(crate) length: Length,
    pub(crate) seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Length {
    /// Mean number of packets that a node receives before the measurement, enough for equal bins to
    /// diverge.
    pub(crate) warm_up_packets: u32,
    pub(crate) losses: u32,
    /// Time for which sending continues after the measurement, so that the last losses can be
    /// repaired. A node that departs within this time after a send is not owed the packet.
    pub(crate) tail: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Variant {
    Papers,
    /// Settings of the papers without pending repairs, so that a repair is used on arrival or
    /// never.
    NothingPending,
    /// Settings of the papers with Carom's repairs: own packets are in the bins, targets are
    /// drawn exclusively, and pending repairs are solved together.
    Carom,
    /// The defaults of the product.
    Defaults,
}

impl Variant {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Papers => "papers' settings",
            Self::NothingPending => "no pending repairs",
            Self::Carom => "Carom's repairs",
            Self::Defaults => "Carom's defaults",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LateralOutcome {
    /// Losses by [`Groups::tag`]: of all groups together, or of each of two groups.
    pub(crate) groups: Vec<GroupOutcome>,
    /// Repairs as a share of the data packets and repairs that arrived.
    pub(crate) overhead: f64,
    /// Repairs, retransmissions and control datagrams as a share of all datagrams that arrived.
    pub(crate) whole_overhead: f64,
    pub(crate) xors_per_packet: f64,
    /// Mean number of repairs with a packet that its bins sent: c by design. Each of a repair's
    /// copies counts, and all repairs are full, as without flushing.
    pub(crate) copies_per_packet: f64,
    pub(crate) bins: f64,
    pub(crate) replaced: u32,
    /// Number of repairs sent, and of those sent to departed nodes.
    pub(crate) repairs_sent: (u64, u64),
    pub(crate) reported_lost: u64,
}

impl Run for LateralRun {
    type Outcome = LateralOutcome;

    fn run(&self, env: Env<'_>) -> Option<Self::Outcome> {
        let config = self.config();
        let make = |id, seed| Lateral::new(id, config.clone(), seed);
        let driven = self.drive(make, Profile::TimeCritical, Work::of, env)?;
        Some(outcome(driven, self.membership.r()))
    }

    fn hosts_of_medium(&self) -> Option<u32> {
        // Nodes that replace others need further hosts, and a lab has no random delays.
        let is_fit = self.churn.is_none() && self.wiring.has_constant_delays();
        is_fit.then(|| self.wiring.hosts())
    }

    fn cost(&self) -> f64 {
        let hosts = f64::from(self.membership.nodes(self.wiring.hosts()));
        let counted = f64::from(self.length.losses) / self.loss.rate().max(1e-3);
        let others = self.membership.others(self.wiring.hosts());
        let tail = hosts * others * self.length.tail.as_secs_f64() / self.interval.as_secs_f64();
        1.7 * (counted + hosts * f64::from(self.length.warm_up_packets) + tail)
    }
}

impl LateralRun {
    /// Returns a run with the usual settings of the papers: without NAKs, stagger or partial views.
    pub(crate) fn of_papers(wiring: Wiring, membership: Membership, seed: u64) -> Self {
        Self {
            wiring,
            membership,
            churn: None,
            interval: Duration::from_millis(10),
            payload_bytes: 64,
            loss: Loss::Uniform(0.01),
            stagger: 1,
            view: None,
            nak: false,
            variant: Variant::Papers,
            scope: RepairScope::Regions,
            length: Length { warm_up_packets: 3000, losses: 20_000, tail: Duration::from_secs(1) },
            seed,
        }
    }

    /// Runs engines that `make` creates from ids and seeds. `look` is called at the start and at
    /// the end of the measurement. Returns `None` if the run is ended early.
    pub(super) fn drive<E: Engine, W>(
        &self,
        mut make: impl FnMut(NodeId, u64) -> E,
        profile: fn(RateOfFire) -> Profile,
        look: impl Fn(&World<Member<E>>) -> W,
        env: Env<'_>,
    ) -> Option<Driven<E, W>> {
        let mut rng = Rng::new(self.seed);
        let mut groups = self.membership.draw(self.wiring.hosts(), &mut rng);
        let (counts, until) = self.counted(&groups);
        let (tail, churn) = (self.length.tail, self.churn.as_ref());
        let plan = Plan::draw(churn, &mut groups, tail, until + tail, &mut rng);
        let (groups, stays, replaced) = (Rc::new(groups), Rc::clone(&plan.stays), plan.replaced());
        let mut sending =
            Sending::new(self.interval, self.payload_bytes, &groups, &stays, &mut rng);
        let mut ledger = Ledger::new(Rc::clone(&groups), stays, counts, until);
        let mut world = self.world(&groups, env, &mut rng);
        if churn.is_none() {
            self.settle(&mut world, &groups, &mut make, profile, &mut rng, env)?;
        }
        let mut changes = plan.begin(churn, groups, &mut make, profile, &mut world, &mut rng);
        sending.go_on(&mut world, &mut changes, &mut ledger, counts, env)?;
        let before = look(&world);
        sending.go_on(&mut world, &mut changes, &mut ledger, until, env)?;
        let after = look(&world);
        sending.go_on(&mut world, &mut changes, &mut ledger, until + tail, env)?;
        Some(Driven { world, ledger, before, after, replaced })
    }

    /// Returns the start and the end of the measurement. Packets sent in this interval are counted.
    fn counted(&self, groups: &Groups) -> (Time, Time) {
        let received_per_second = groups.mean_received_per_message() / self.interval.as_secs_f64();
        let seconds = |seconds: f64| Duration::from_nanos((seconds * 1e9) as u64);
        let warm_up = f64::from(self.length.warm_up_packets) / received_per_second;
        let losses_per_second =
            received_per_second * groups.hosts().count() as f64 * self.loss.rate().max(1e-3);
        let counts = BEGINNING + seconds(warm_up);
        (counts, counts + seconds(f64::from(self.length.losses) / losses_per_second))
    }

    fn config(&self) -> Config {
        if self.variant == Variant::Defaults {
            return Config::default();
        }
        let as_long_as_needed = Duration::from_secs(60);
        let base = Config {
            scope: self.scope,
            stagger: self.stagger,
            partial_view: self.view.map(|view| view as usize - 1),
            nak: self.nak.then(NakConfig::default),
            buffer_age: as_long_as_needed,
            give_up_after: as_long_as_needed,
            buffer_bytes: 24 << 20,
            ..Config::as_in_the_papers()
        };
        let base = if self.churn.is_none() { base } else { when_nodes_come_and_go(base) };
        match self.variant {
            Variant::Papers => base,
            Variant::NothingPending => Config { pending_repairs: 0, ..base },
            Variant::Carom | Variant::Defaults => {
                let carom = Config::default();
                let Config { own_packets, exclusive_targets, solver, pending_repairs, .. } = carom;
                Config { own_packets, exclusive_targets, solver, pending_repairs, ..base }
            }
        }
    }

    fn world<E: Engine>(&self, groups: &Groups, env: Env<'_>, rng: &mut Rng) -> World<Member<E>> {
        let hosts = groups.hosts().max().map_or(0, |last| last + 1);
        World::new(WorldConfig {
            loss: self.loss,
            hashes_history: false,
            checks: false,
            media: env.media(),
            ..WorldConfig::new(self.wiring.with_room_for(hosts).topology(), rng.next_u64())
        })
    }

    /// Starts all nodes, with all members in their views. Returns `None` if the run is ended early.
    fn settle<E: Engine>(
        &self,
        world: &mut World<Member<E>>,
        groups: &Groups,
        make: &mut dyn FnMut(NodeId, u64) -> E,
        profile: fn(RateOfFire) -> Profile,
        rng: &mut Rng,
        env: Env<'_>,
    ) -> Option<()> {
        for host in groups.hosts() {
            let mut engine = make(node_id(host), rng.next_u64());
            for group in groups.of(host) {
                if env.ends() {
                    return None;
                }
                let profile = profile(groups.rate(*group, host));
                let settings = GroupSettings { profile, name_check: 0 };
                let (now, id) = (world.now(), group_id(*group));
                engine.join(now, id, settings).expect("plans are checked before they are run");
                for member in groups.members(*group).iter().filter(|member| **member != host) {
                    let (node, kind) = (node_id(*member), ViewChangeKind::Joined);
                    engine.handle_view(now, &ViewChange { group: id, node, kind, version: 1 });
                }
            }
            let tags = groups.has_tags().then(|| groups.tags());
            world.spawn(HostIx(host), node_id(host), Member::new(engine, tags));
            for group in groups.of(host) {
                world.subscribe(HostIx(host), group_id(*group));
            }
        }
        Some(())
    }
}

/// Returns the configuration with churn: a node is owed a stream from its join on, and keeps
/// packets for the usual time.
fn when_nodes_come_and_go(base: Config) -> Config {
    let Config { buffer_age, give_up_after, .. } = Config::default();
    Config { stream_start: StreamStart::AskSender, buffer_age, give_up_after, ..base }
}

pub(super) struct Driven<E: Engine, W> {
    world: World<Member<E>>,
    pub(super) ledger: Ledger,
    pub(super) before: W,
    pub(super) after: W,
    replaced: u32,
}

fn outcome(driven: Driven<Lateral, Work>, r: u8) -> LateralOutcome {
    let Driven { world, ledger, before, after, replaced } = driven;
    let since = |count: &dyn Fn(&Work) -> u64| count(&after) - count(&before);
    let arrived = |class| since(&|work| work.arrived.datagrams(class)) as f64;
    let (repairs, data) = (arrived(Class::Repair), arrived(Class::Data));
    let all = repairs + data + arrived(Class::Retransmission) + arrived(Class::Control);
    let hosts = world.topology().all_hosts();
    let members: Vec<&Member<Lateral>> = hosts.filter_map(|host| world.machine(host)).collect();
    let mut shares = vec![(0.0, 0.0); ledger.tags()];
    for (tag, total) in shares.iter_mut().enumerate() {
        for member in &members {
            let (data, repairs) = member.arrived_of(tag);
            *total = (total.0 + data, total.1 + repairs);
        }
    }
    let bins: usize = members.iter().map(|member| member.engine.bins_and_missing().0).sum();
    let reported_lost = ledger.given_up();
    let mut groups = ledger.close();
    for (group, (data, repairs)) in groups.iter_mut().zip(shares) {
        group.overhead = (data > 0.0).then(|| repairs / (data + repairs));
    }
    let [xors, copies, binned] = after.binned_since(&before);
    LateralOutcome {
        groups,
        overhead: repairs / (repairs + data),
        whole_overhead: 1.0 - data / all,
        xors_per_packet: xors as f64 / binned as f64,
        copies_per_packet: f64::from(r) * copies as f64 / binned as f64,
        bins: bins as f64 / members.len().max(1) as f64,
        replaced,
        repairs_sent: (
            since(&|work| work.sent.datagrams(Class::Repair)),
            since(&|work| work.to_nobody.datagrams(Class::Repair)),
        ),
        reported_lost,
    }
}

impl LateralOutcome {
    pub(crate) fn all(&self) -> &GroupOutcome {
        &self.groups[0]
    }
}

impl fmt::Display for LateralRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, loss {}", self.membership, self.loss)?;
        if self.stagger > 1 {
            write!(f, ", stagger {}", self.stagger)?;
        }
        match self.variant {
            Variant::Papers => {}
            Variant::NothingPending => f.write_str(", no pending repairs")?,
            Variant::Carom => f.write_str(", Carom's repairs")?,
            Variant::Defaults => f.write_str(", Carom's defaults")?,
        }
        if self.scope == RepairScope::PerGroup {
            f.write_str(", repairs per group")?;
        }
        if let Some(churn) = &self.churn {
            write!(f, ", {churn}")?;
        }
        if self.nak {
            f.write_str(", with NAKs")?;
        }
        self.view.map_or(Ok(()), |view| write!(f, ", views of {view}"))
    }
}

struct Work {
    arrived: PerClass,
    sent: PerClass,
    /// Part of `sent` that went to departed nodes.
    to_nobody: PerClass,
    /// Numbers of XORs, of repairs sent and of packets added to bins, by host. `None` for a host
    /// without a node.
    binned: Vec<Option<[u64; 3]>>,
}

impl Work {
    fn of(world: &World<Member<Lateral>>) -> Self {
        let binned = |host| {
            let counters = world.machine(host)?.engine.counters();
            Some([counters.xors, counters.repairs_sent, counters.packets_binned])
        };
        let counters = world.counters();
        Self {
            arrived: counters.delivered,
            sent: counters.sent,
            to_nobody: counters.unknown_destination,
            binned: world.topology().all_hosts().map(binned).collect(),
        }
    }

    fn binned_since(&self, before: &Self) -> [u64; 3] {
        let both = self.binned.iter().zip(&before.binned);
        let stayed = both.filter_map(|(now, then)| Some(((*now)?, (*then)?)));
        let add = |sum: [u64; 3], (now, then): ([u64; 3], [u64; 3])| {
            [0, 1, 2].map(|place| sum[place] + now[place] - then[place])
        };
        stayed.fold([0; 3], add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lateral::Views;

    const USUAL: RateOfFire = RateOfFire::new(8, 5);

    fn run(membership: Membership, seed: u64) -> LateralRun {
        let length = Length { warm_up_packets: 800, losses: 600, tail: Duration::from_millis(400) };
        let wiring = Wiring::rack(1, 16);
        LateralRun { length, ..LateralRun::of_papers(wiring, membership, seed) }
    }

    #[test]
    fn most_losses_are_recovered_and_the_seed_decides_all() {
        let membership = Membership::OneGroup { size: 16, rate: USUAL, odd: USUAL };
        let outcome =
            run(membership.clone(), 3).run(&|| false).expect("the run is not ended early");
        let all = outcome.all();
        assert!((400..900).contains(&all.lost), "{} lost", all.lost);
        assert!(all.recovered_share() > 0.9, "{}", all.recovered_share());
        assert_eq!(all.nak.len(), 0);
        assert!((outcome.overhead - 0.382).abs() < 0.01, "{}", outcome.overhead);
        assert_eq!(run(membership.clone(), 3).run(&|| false).as_ref(), Some(&outcome));
        assert_ne!(run(membership, 4).run(&|| false).as_ref(), Some(&outcome));
    }

    #[test]
    fn with_naks_everything_arrives() {
        let membership = Membership::Random { groups_per_node: 8, mean_size: 8, rate: USUAL };
        let mut run = run(membership, 5);
        (run.nak, run.length.tail, run.loss) = (true, Duration::from_secs(8), Loss::Uniform(0.1));
        let outcome = run.run(&|| false).expect("the run is not ended early");
        let all = outcome.all();
        assert!(all.nak.len() > 0 && all.fec.len() > all.nak.len());
        assert_eq!(all.missing, 0);
    }

    #[test]
    fn churning_nodes_are_repaired_with_any_source_of_views() {
        let [failures, others] = [1000, 100].map(|ms| crate::plan::Span(Duration::from_millis(ms)));
        for views in [Views::Told { failures, others }, Views::Gossip] {
            let membership = Membership::Random { groups_per_node: 8, mean_size: 8, rate: USUAL };
            let mut run = run(membership, 6);
            (run.length.losses, run.nak) = (1500, true);
            run.churn = Some(Churn { replaced_per_minute: 4.0, views });
            let outcome = run.run(&|| false).expect("the run is not ended early");
            let all = outcome.all();
            assert!(outcome.replaced >= 10, "{} replaced", outcome.replaced);
            assert!(outcome.repairs_sent.1 > 0, "{:?}", outcome.repairs_sent);
            assert!(all.recovered_share() > 0.8, "{views}: {}", all.recovered_share());
            assert!(all.delivered_share() > 0.999, "{views}: {}", all.delivered_share());
            assert_eq!(run.run(&|| false).as_ref(), Some(&outcome));
        }
    }

    #[test]
    fn a_run_can_be_ended_early() {
        let membership = Membership::OneGroup { size: 16, rate: USUAL, odd: USUAL };
        assert_eq!(run(membership, 3).run(&|| true), None);
    }
}

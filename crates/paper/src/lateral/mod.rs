//! A run of the lateral engine: nodes in groups that all send at one rate, and what became of
//! every packet that was lost.

mod ledger;
mod member;
mod membership;

use std::fmt;
use std::time::Duration;

use carom_proto::lateral::{Config, Counters, Lateral, NakConfig};
use carom_proto::loss::Loss;
use carom_proto::{
    Class, GroupId, GroupSettings, NodeId, Profile, Rng, SendOptions, Time, ViewChange,
    ViewChangeKind,
};
use carom_sim::{HostIx, PerClass, World, WorldConfig};

use crate::network::Wiring;
use crate::work::Ends;

pub(crate) use ledger::GroupOutcome;
pub(crate) use membership::{Groups, Membership};

use ledger::Ledger;
use member::{Member, Told};

/// A run. Two that say the same have the same outcome.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LateralRun {
    /// What the nodes are connected by.
    pub(crate) wiring: Wiring,
    /// Who is in which group.
    pub(crate) membership: Membership,
    /// Each node sends a message so often, each in one of its groups at random.
    pub(crate) interval: Duration,
    /// Bytes of a message.
    pub(crate) payload_bytes: usize,
    /// What each host loses on receipt, data and repairs alike.
    pub(crate) loss: Loss,
    /// Interleaved copies of each repair bin.
    pub(crate) stagger: u8,
    /// Nodes in a partial view, the node itself included.
    pub(crate) view: Option<u32>,
    /// Whether what repairs do not bring is asked for.
    pub(crate) nak: bool,
    /// How long the run is.
    pub(crate) length: Length,
    /// The seed of all that is random.
    pub(crate) seed: u64,
}

/// How long a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Length {
    /// Packets that a node receives before anything counts, on average: bins that start alike
    /// have drifted apart by then.
    pub(crate) warm_up_packets: u32,
    /// Losses that are counted, about.
    pub(crate) losses: u32,
    /// How long sending goes on after that, so that the last of them can be repaired.
    pub(crate) tail: Duration,
}

/// What came of a run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LateralOutcome {
    /// By [`Groups::tag`]: all groups together, or each of two.
    pub(crate) groups: Vec<GroupOutcome>,
    /// Repairs as a share of the data packets and repairs that arrived.
    pub(crate) overhead: f64,
    /// XORs for each data packet put into bins.
    pub(crate) xors_per_packet: f64,
    /// Repair bins of a node, on average.
    pub(crate) bins: f64,
    /// Datagrams that arrived in the whole run.
    pub(crate) deliveries: u64,
}

impl LateralRun {
    /// The usual settings of the papers: without NAKs, stagger or partial views.
    pub(crate) fn of_papers(wiring: Wiring, membership: Membership, seed: u64) -> Self {
        Self {
            wiring,
            membership,
            interval: Duration::from_millis(10),
            payload_bytes: 64,
            loss: Loss::Uniform(0.01),
            stagger: 1,
            view: None,
            nak: false,
            length: Length { warm_up_packets: 3000, losses: 20_000, tail: Duration::from_secs(1) },
            seed,
        }
    }

    /// Does it; `None` if it was ended early.
    pub(crate) fn run(&self, ends: Ends<'_>) -> Option<LateralOutcome> {
        let mut rng = Rng::new(self.seed);
        let groups = self.membership.draw(self.wiring.hosts(), &mut rng);
        let mut sending = Sending::new(self, &groups, &mut rng);
        let (begins, counts, until) = sending.times;
        let mut ledger = Ledger::new(&groups, counts, until);
        let mut world = self.world(&groups, &mut rng);
        sending.go_on(&mut world, &mut ledger, begins, counts, ends)?;
        let before = Work::of(&world);
        sending.go_on(&mut world, &mut ledger, counts, until, ends)?;
        let work = Work::of(&world);
        let end = until + self.length.tail;
        sending.go_on(&mut world, &mut ledger, until, end, ends)?;
        Some(self.outcome(&world, ledger, &before, &work))
    }

    /// How many data packets and repairs arrive at nodes, roughly: what the run costs.
    pub(crate) fn deliveries(&self) -> f64 {
        let hosts = f64::from(self.membership.nodes(self.wiring.hosts()));
        let counted = f64::from(self.length.losses) / self.loss.rate().max(1e-3);
        1.7 * (counted + hosts * f64::from(self.length.warm_up_packets))
    }

    fn config(&self) -> Config {
        let as_long_as_needed = Duration::from_secs(60);
        Config {
            stagger: self.stagger,
            partial_view: self.view.map(|view| view as usize - 1),
            nak: self.nak.then(NakConfig::default),
            buffer_age: as_long_as_needed,
            give_up_after: as_long_as_needed,
            buffer_bytes: 24 << 20,
            ..Config::as_in_the_papers()
        }
    }

    /// A world in which everybody is in all of its groups from the start.
    fn world(&self, groups: &Groups, rng: &mut Rng) -> World<Member> {
        let mut world = World::new(WorldConfig {
            loss: self.loss,
            hashes_history: false,
            checks: false,
            ..WorldConfig::new(self.wiring.topology(), rng.next_u64())
        });
        for host in groups.hosts() {
            let mut engine = Lateral::new(node_id(host), self.config(), rng.next_u64());
            for group in groups.of(host) {
                let rate = groups.rate(*group, host);
                let settings =
                    GroupSettings { profile: Profile::TimeCritical(rate), name_check: 0 };
                let (now, id) = (world.now(), group_id(*group));
                carom_proto::Engine::join(&mut engine, now, id, settings)
                    .expect("plans are checked before they are run");
                for member in groups.members(*group).iter().filter(|member| **member != host) {
                    let (node, kind) = (node_id(*member), ViewChangeKind::Joined);
                    let change = ViewChange { group: id, node, kind, version: 1 };
                    carom_proto::Engine::handle_view(&mut engine, now, &change);
                }
            }
            let tags = groups.has_tags().then(|| groups.tags());
            world.spawn(HostIx(host), node_id(host), Member::new(engine, tags));
            for group in groups.of(host) {
                world.subscribe(HostIx(host), group_id(*group));
            }
        }
        world
    }

    fn outcome(
        &self,
        world: &World<Member>,
        ledger: Ledger<'_>,
        before: &Work,
        work: &Work,
    ) -> LateralOutcome {
        let arrived =
            |class| (work.arrived.datagrams(class) - before.arrived.datagrams(class)) as f64;
        let (repairs, data) = (arrived(Class::Repair), arrived(Class::Data));
        let hosts = world.topology().all_hosts();
        let members: Vec<&Member> = hosts.filter_map(|host| world.machine(host)).collect();
        let mut shares = vec![(0.0, 0.0); ledger.tags()];
        for (tag, total) in shares.iter_mut().enumerate() {
            for member in &members {
                let (data, repairs) = member.arrived_of(tag);
                *total = (total.0 + data, total.1 + repairs);
            }
        }
        let bins: usize = members.iter().map(|member| member.engine().bins_and_missing().0).sum();
        let mut groups = ledger.close();
        for (group, (data, repairs)) in groups.iter_mut().zip(shares) {
            group.overhead = (data > 0.0).then(|| repairs / (data + repairs));
        }
        LateralOutcome {
            groups,
            overhead: repairs / (repairs + data),
            xors_per_packet: (work.xors - before.xors) as f64
                / (work.binned - before.binned) as f64,
            bins: bins as f64 / members.len().max(1) as f64,
            deliveries: world.counters().delivered.all_datagrams(),
        }
    }
}

impl LateralOutcome {
    /// All groups together, if they were not told apart.
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
        self.view.map_or(Ok(()), |view| write!(f, ", views of {view}"))
    }
}

/// Who sends when.
struct Sending<'a> {
    groups: &'a Groups,
    interval: Duration,
    payload: bytes::Bytes,
    /// When each node sends within the interval, in order.
    phases: Vec<(Duration, u32)>,
    /// The next to send, and the beginning of the interval it is in.
    next: (usize, Time),
    /// When sending begins, when it begins to count, and until when it does.
    times: (Time, Time, Time),
    rng: Rng,
}

impl<'a> Sending<'a> {
    fn new(run: &LateralRun, groups: &'a Groups, rng: &mut Rng) -> Self {
        let begins = BEGINNING;
        let received_per_second = groups.mean_received_per_message() / run.interval.as_secs_f64();
        let seconds = |seconds: f64| Duration::from_nanos((seconds * 1e9) as u64);
        let warm_up = f64::from(run.length.warm_up_packets) / received_per_second;
        let losses_per_second =
            received_per_second * groups.hosts().count() as f64 * run.loss.rate().max(1e-3);
        let counts = begins + seconds(warm_up);
        let until = counts + seconds(f64::from(run.length.losses) / losses_per_second);
        let phase = |host| (seconds(run.interval.as_secs_f64() * rng.fraction()), host);
        let mut phases: Vec<(Duration, u32)> = groups.hosts().map(phase).collect();
        phases.sort_unstable();
        let payload = vec![0xA5; run.payload_bytes].into();
        let (times, rng) = ((begins, counts, until), rng.fork(1));
        Self { groups, interval: run.interval, payload, phases, next: (0, begins), times, rng }
    }

    /// Sends what is due from `from` to `to`; `None` if it was ended early.
    fn go_on(
        &mut self,
        world: &mut World<Member>,
        ledger: &mut Ledger<'_>,
        from: Time,
        to: Time,
        ends: Ends<'_>,
    ) -> Option<()> {
        debug_assert!(world.now() <= from || from == BEGINNING);
        loop {
            let (phase, host) = self.phases[self.next.0];
            let at = self.next.1 + phase;
            if at >= to {
                world.run_until(to, &mut |happening| ledger.note(happening));
                return Some(());
            }
            self.next.0 += 1;
            if self.next.0 == self.phases.len() {
                self.next = (0, self.next.1 + self.interval);
                if ends() {
                    return None;
                }
            }
            world.run_until(at, &mut |happening| ledger.note(happening));
            self.send(world, ledger, host);
        }
    }

    fn send(&mut self, world: &mut World<Member>, ledger: &mut Ledger<'_>, host: u32) {
        let own = self.groups.of(host);
        if own.is_empty() {
            return;
        }
        let group = own[self.rng.below(own.len())];
        let payload = self.payload.clone();
        let sent = world.with(HostIx(host), |member, now| {
            member.send(now, group_id(group), payload, SendOptions::default())
        });
        sent.expect("every host has a machine")
            .expect("nobody is held back, and the size is right");
        ledger.note_sent(world.now(), group);
    }
}

/// What was done so far, by all nodes together.
struct Work {
    arrived: PerClass,
    xors: u64,
    binned: u64,
}

impl Work {
    fn of(world: &World<Member>) -> Self {
        let members = world.topology().all_hosts().filter_map(|host| world.machine(host));
        let counters: Vec<Counters> = members.map(|member| member.engine().counters()).collect();
        Self {
            arrived: world.counters().delivered,
            xors: counters.iter().map(|counters| counters.xors).sum(),
            binned: counters.iter().map(|counters| counters.packets_binned).sum(),
        }
    }
}

/// The node on a host.
pub(crate) fn node_id(host: u32) -> NodeId {
    NodeId(u64::from(host) + 1)
}

/// The group with a number.
pub(crate) fn group_id(group: u32) -> GroupId {
    GroupId(group + 1)
}

/// When a world begins.
const BEGINNING: Time = Time(1_000_000_000);

#[cfg(test)]
mod tests {
    use carom_proto::RateOfFire;

    use super::*;

    const USUAL: RateOfFire = RateOfFire::new(8, 5);

    fn run(membership: Membership, seed: u64) -> LateralRun {
        let length = Length { warm_up_packets: 800, losses: 600, tail: Duration::from_millis(400) };
        let wiring = Wiring::rack(1, 16);
        LateralRun { length, ..LateralRun::of_papers(wiring, membership, seed) }
    }

    #[test]
    fn what_is_lost_is_mostly_recovered_and_the_seed_decides_it_all() {
        let membership = Membership::OneGroup { size: 16, rate: USUAL, odd: USUAL };
        let outcome = run(membership.clone(), 3).run(&|| false).expect("nobody ends it");
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
        let outcome = run.run(&|| false).expect("nobody ends it");
        let all = outcome.all();
        assert!(all.nak.len() > 0 && all.fec.len() > all.nak.len());
        assert_eq!(all.missing, 0);
    }

    #[test]
    fn a_run_can_be_ended_early() {
        let membership = Membership::OneGroup { size: 16, rate: USUAL, odd: USUAL };
        assert_eq!(run(membership, 3).run(&|| true), None);
    }
}

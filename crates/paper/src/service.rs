//! The windows of inconsistency of a small replicated service on the public API, in a simulated
//! world.
//!
//! The service is a counter in each group. A replica applies its own update at once and publishes
//! it. The other replicas apply it on delivery. Updates commute, so their order does not matter.
//! The window of inconsistency of an update is the time from the first replica that applies it,
//! which is the one that makes it, to the last.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use carom::sim::{Host, Membership as Oracle, World, WorldConfig};
use carom::unstable::lateral;
use carom::{Event, Group, Loss, Node, Profile};
use carom_proto::{Class, Rng};

use crate::delays::Delays;
use crate::lateral::{Groups, Membership};
use crate::network::Wiring;
use crate::work::{Env, Run};

/// A run of the replicated service. Equal runs have equal outcomes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ServiceRun {
    pub(crate) wiring: Wiring,
    pub(crate) membership: Membership,
    /// Interval between two updates of a node. Each update changes a random one of its counters.
    pub(crate) interval: Duration,
    pub(crate) loss: f64,
    pub(crate) config: lateral::Config,
    /// Durations of the warm-up and of the measured interval.
    pub(crate) spans: (Duration, Duration),
    pub(crate) tail: Duration,
    pub(crate) seed: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ServiceOutcome {
    /// Windows of the updates that all replicas applied.
    pub(crate) windows: Delays,
    /// Number of updates that a replica had not applied at the end.
    pub(crate) incomplete: u64,
    /// Number of groups whose replicas have different values at the end.
    pub(crate) disagreeing: u64,
    pub(crate) repairs_share: f64,
    pub(crate) control_share: f64,
}

struct Book {
    groups: Groups,
    updates: Vec<Update>,
    values: Vec<Vec<u64>>,
}

/// An update, and the number of replicas that have not yet applied it.
struct Update {
    counts: bool,
    made_at: Duration,
    last_at: Duration,
    missing_at: u32,
}

struct Replica {
    group: u32,
    place: usize,
    host: Host,
    channel: Group,
    book: Rc<RefCell<Book>>,
}

impl Replica {
    async fn update(&self, counts: bool) {
        let number = self.book.borrow_mut().make(self.group, self.place, self.now(), counts);
        // The queue of the group is bounded. Publishing waits while it is full.
        let published = self.channel.publish(number.to_be_bytes().to_vec()).await;
        published.expect("the group is open and the update is small");
    }

    async fn serve(&self) {
        while let Some(event) = self.channel.recv().await {
            if let Event::Message(message) = event {
                let number = message.payload[..].try_into().expect("updates have eight bytes");
                let number = u64::from_be_bytes(number);
                self.book.borrow_mut().apply(self.group, self.place, number, self.now());
            }
        }
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(self.host.now().0)
    }
}

impl Book {
    fn make(&mut self, group: u32, place: usize, now: Duration, counts: bool) -> u64 {
        let others = self.groups.members(group).len() as u32 - 1;
        let update = Update { counts, made_at: now, last_at: now, missing_at: others };
        self.updates.push(update);
        self.values[group as usize][place] += 1;
        self.updates.len() as u64 - 1
    }

    fn apply(&mut self, group: u32, place: usize, number: u64, now: Duration) {
        self.values[group as usize][place] += 1;
        let update = &mut self.updates[number as usize];
        update.missing_at -= 1;
        update.last_at = now;
    }

    fn counted(&self) -> impl Iterator<Item = &Update> {
        self.updates.iter().filter(|update| update.counts)
    }
}

impl Run for ServiceRun {
    type Outcome = ServiceOutcome;

    fn run(&self, env: Env<'_>) -> Option<Self::Outcome> {
        let mut rng = Rng::new(self.seed);
        let groups = self.membership.draw(self.wiring.hosts(), &mut rng);
        let mut world = self.world(&mut rng);
        let replicas = self.join(&mut world, &groups, env)?;
        for replica in replicas.iter().flatten() {
            let replica = Rc::clone(replica);
            world.spawn(&replica.host.clone(), async move { replica.serve().await });
        }
        let (warm_up, span) = self.spans;
        for own in replicas.iter().filter(|own| !own.is_empty()) {
            let (own, mut rng, interval) = (own.clone(), rng.fork(2), self.interval);
            let host = own[0].host.clone();
            let ends_at = host.now() + warm_up + span;
            let counts_from = host.now() + warm_up;
            world.spawn(&host.clone(), async move {
                host.sleep(interval.mul_f64(rng.fraction())).await;
                while host.now() < ends_at {
                    own[rng.below(own.len())].update(host.now() >= counts_from).await;
                    host.sleep(interval).await;
                }
            });
        }
        pass(&mut world, warm_up + span + self.tail, env)?;
        Some(outcome(&world, &replicas))
    }

    /// Estimates the number of received packets, weighted by their cost relative to a bare engine.
    fn cost(&self) -> f64 {
        let (warm_up, span) = self.spans;
        let seconds = (warm_up + span + self.tail).as_secs_f64();
        let others = self.membership.others(self.wiring.hosts());
        6.0 * f64::from(self.wiring.hosts()) * others * seconds / self.interval.as_secs_f64()
    }
}

impl ServiceRun {
    fn world(&self, rng: &mut Rng) -> World {
        let config = WorldConfig {
            loss: Loss::Uniform(self.loss),
            hashes_history: false,
            checks: false,
            ..WorldConfig::new(self.wiring.topology(), rng.next_u64())
        };
        World::with_membership(config, Oracle::Oracle { delay: Duration::ZERO })
    }

    /// Starts a node on each host, and joins its groups. Returns the replicas of each host.
    fn join(
        &self,
        world: &mut World,
        groups: &Groups,
        env: Env<'_>,
    ) -> Option<Vec<Vec<Rc<Replica>>>> {
        let count = groups.count();
        let values = (0..count).map(|group| vec![0; groups.members(group).len()]).collect();
        let book = Book { groups: groups.clone(), updates: Vec::new(), values };
        let book = Rc::new(RefCell::new(book));
        let joined: Rc<RefCell<Vec<Vec<Rc<Replica>>>>> =
            Rc::new(RefCell::new(vec![Vec::new(); world.hosts().len()]));
        for host in world.hosts() {
            let (own, book) = (groups.of(host.ix().0).to_vec(), Rc::clone(&book));
            let (joined, config) = (Rc::clone(&joined), self.config.clone());
            let (rate, members) = (groups.clone(), groups.clone());
            let number = host.ix().0;
            world.spawn(&host.clone(), async move {
                // One host after another, so that no step of the world takes long.
                host.sleep(BETWEEN_HOSTS * number).await;
                let node = Node::builder().lateral(config).start_on(&host);
                let node = node.expect("the host is free and the settings are valid");
                for group in own {
                    let rate = rate.rate(group, number);
                    let profile = Profile::time_critical().rate_of_fire(rate.r, rate.c);
                    let channel = node.join(&format!("counter {group}"), profile).await;
                    let channel = channel.expect("all members have the same settings");
                    let place = members.members(group).binary_search(&number);
                    let place = place.expect("it is a member");
                    let (host, book) = (host.clone(), Rc::clone(&book));
                    let replica = Replica { group, place, host, channel, book };
                    joined.borrow_mut()[number as usize].push(Rc::new(replica));
                }
                // The node must live as long as its replicas, which other code uses.
                std::future::pending::<()>().await;
                drop(node);
            });
        }
        pass(world, BETWEEN_HOSTS * self.wiring.hosts() + JOINING, env)?;
        let joined = joined.borrow().clone();
        Some(joined)
    }
}

fn pass(world: &mut World, span: Duration, env: Env<'_>) -> Option<()> {
    let mut left = span;
    while !left.is_zero() {
        if env.ends() {
            return None;
        }
        let slice = left.min(SLICE);
        world.run_for(slice);
        left -= slice;
    }
    Some(())
}

fn outcome(world: &World, replicas: &[Vec<Rc<Replica>>]) -> ServiceOutcome {
    let book =
        replicas.iter().flatten().next().expect("at least one node is in a group").book.borrow();
    let complete = book.counted().filter(|update| update.missing_at == 0);
    let windows = Delays::new(complete.map(|update| update.last_at - update.made_at));
    let incomplete = book.counted().filter(|update| update.missing_at > 0).count() as u64;
    let differ = |values: &&Vec<u64>| values.windows(2).any(|pair| pair[0] != pair[1]);
    let arrived = &world.counters().delivered;
    let share = |class| arrived.datagrams(class) as f64 / arrived.all_datagrams() as f64;
    ServiceOutcome {
        windows,
        incomplete,
        disagreeing: book.values.iter().filter(differ).count() as u64,
        repairs_share: share(Class::Repair),
        control_share: share(Class::Control),
    }
}

impl fmt::Display for ServiceRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "replicated counters, {}", self.membership)
    }
}

const BETWEEN_HOSTS: Duration = Duration::from_millis(5);
/// Virtual time for the last host to join. Joining takes no longer than the oracle's delay.
const JOINING: Duration = Duration::from_millis(50);
/// Virtual time between two checks of whether the run is to end.
const SLICE: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use carom_proto::RateOfFire;

    use super::*;

    #[test]
    fn replicas_agree_in_a_time_set_by_the_seed() {
        let rate = RateOfFire::new(8, 5);
        let run = ServiceRun {
            wiring: Wiring::rack(1, 8),
            membership: Membership::Random { groups_per_node: 4, mean_size: 4, rate },
            interval: Duration::from_millis(10),
            loss: 0.05,
            config: lateral::Config::default(),
            spans: (Duration::from_millis(100), Duration::from_secs(2)),
            tail: Duration::from_secs(5),
            seed: 9,
        };
        let outcome = run.run(&|| false).expect("the run is not ended early");
        assert_eq!((outcome.incomplete, outcome.disagreeing), (0, 0));
        assert!((1_400..=1_700).contains(&outcome.windows.len()), "{}", outcome.windows.len());
        assert!(outcome.windows.quantile_ms(0.5) < 1.0);
        assert!(outcome.windows.quantile_ms(1.0) > 1.0);
        assert_eq!(run.run(&|| false), Some(outcome));
    }
}

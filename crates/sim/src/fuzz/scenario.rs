//! The events of one run: drawn from a seed, in a form that can be printed and shrunk.

use core::fmt;
use core::time::Duration;

use carom_proto::loss::Loss;
use carom_proto::membership::service::CommitFailure;
use carom_proto::{GroupId, Rng};

use super::attacker::Forgery;
use super::cast::Cast;
use super::draws::may_be_later;
use super::naming::keeps_ids;
use super::playing::{Play, write_scenario};
use super::troubles::{Service, service_of};
use crate::{Fault, HostIx};

/// One run, without the protocol's settings.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Seed of everything else.
    pub seed: u64,
    /// Number of hosts.
    pub hosts: u32,
    /// Number of groups.
    pub groups: u32,
    /// Source of the members' views.
    pub views: Views,
    /// Loss model of every host from the start.
    pub loss: Loss,
    /// Kinds of faults that can occur: a random subset, which makes rare combinations more likely
    /// (swarm testing).
    pub kinds: Vec<Kind>,
    /// Steps of the run, in order of time since the start.
    pub acts: Vec<(Duration, Act)>,
}

/// The source of the members' views.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Views {
    /// The world, with a delay of up to this time.
    Roster(Duration),
    /// The members' gossip, which detects a failure within this time.
    Gossip(Duration),
    /// A membership service.
    Service(Service),
}

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A host is killed for good.
    Crash,
    /// A host is killed and restarted.
    Restart,
    /// A host is paused for a while.
    Pause,
    /// Some hosts are partitioned from the others for a while.
    Partition,
    /// Datagrams of some hosts do not reach some others for a while.
    OneWay,
    /// Datagrams are delayed, duplicated or damaged for a while.
    Disturb,
    /// A host loses many datagrams for a while.
    Loss,
    /// A host's clock is stepped.
    Clock,
    /// A host is slow for a while.
    Slow,
    /// A host falsely considers another failed for a while.
    Suspicion,
    /// A host leaves a group and joins it again.
    Churn,
}

/// One step of a scenario.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// The host joins the group, unless it is in it.
    Join(HostIx, GroupId),
    /// The host leaves the group, if it is in it.
    Leave(HostIx, GroupId),
    /// The host sends messages.
    Send {
        /// The sending host.
        host: HostIx,
        /// The group.
        group: GroupId,
        /// Number of messages.
        count: u32,
        /// Bytes in each.
        bytes: usize,
        /// Deadline of each.
        deadline: Option<Duration>,
    },
    /// The host requests confirmation from the members.
    Confirm(HostIx, GroupId),
    /// The host is killed.
    Crash(HostIx),
    /// The node on the host announces that it stops, and stops.
    Stop(HostIx),
    /// A host that is down restarts in its former groups, as another node or as another start of
    /// the same node.
    Restart(HostIx),
    /// A host is killed and restarts before its failure is reported.
    Bounce(HostIx),
    /// The failure of the second host is falsely reported to the first.
    Suspect(HostIx, HostIx),
    /// The false report to the first host about the second is withdrawn.
    Trust(HostIx, HostIx),
    /// A fault begins or ends.
    Fault(Fault),
    /// An attacker sends this number of datagrams to the host.
    Forge(HostIx, u32, Forgery),
    /// A control process is killed.
    KillProcess(u32),
    /// A control process is started, unless it runs.
    StartProcess(u32),
    /// The service's store fails in this way from now on, and loses this share of its answers.
    Store(Option<CommitFailure>, f64),
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 11] = [
        Self::Crash,
        Self::Restart,
        Self::Pause,
        Self::Partition,
        Self::OneWay,
        Self::Disturb,
        Self::Loss,
        Self::Clock,
        Self::Slow,
        Self::Suspicion,
        Self::Churn,
    ];
}

impl Act {
    /// Returns `true` if it can prevent a node from receiving or answering a query.
    pub(crate) fn can_silence(&self) -> bool {
        match self {
            Self::Crash(_) | Self::Stop(_) | Self::Restart(_) | Self::Bounce(_) => true,
            Self::Suspect(..) | Self::KillProcess(_) | Self::Leave(..) => true,
            Self::Fault(Fault::Heal | Fault::Resume(_) | Fault::Disturb(_)) => false,
            Self::Fault(_) => true,
            _ => false,
        }
    }
}

impl Scenario {
    /// Returns the scenario of `seed`: 5 to 20 hosts, some of the kinds of faults, a second or two.
    pub fn of_seed(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let most = if rng.chance(0.7) { 4 } else { 16 };
        let hosts = 5 + rng.below(most) as u32;
        let groups = 1 + rng.below(4) as u32;
        let delay = [0, 0, 5_000, 100_000][rng.below(4)];
        let views = match rng.below(4) {
            0 => Views::Gossip(coming_and_going(seed).1),
            _ => match service_of(seed).1 {
                Some(service) => Views::Service(service),
                None => Views::Roster(Duration::from_micros(delay)),
            },
        };
        let losses = [
            Loss::None,
            Loss::Uniform(0.01),
            Loss::Uniform(0.05),
            Loss::Uniform(0.2),
            Loss::Burst { rate: 0.05, length: 10 },
            Loss::Markov { rate: 0.1, mean_burst: 5.0 },
            Loss::GilbertElliott { to_bad: 0.02, to_good: 0.2, loss_good: 0.005, loss_bad: 0.6 },
        ];
        let loss = losses[rng.below(losses.len())];
        let share = [0.0, 0.3, 0.6, 1.0][rng.below(4)];
        let kinds = Kind::ALL.into_iter().filter(|_| rng.chance(share)).collect();
        let mut scenario = Self { seed, hosts, groups, views, loss, kinds, acts: Vec::new() };
        scenario.draw_acts(&mut rng);
        if !matches!(views, Views::Roster(_)) {
            let (mut rng, _) = coming_and_going(seed);
            scenario.draw_coming_and_going(&mut rng);
        }
        if let Views::Service(service) = views {
            let (mut rng, _) = service_of(seed);
            scenario.draw_service_troubles(service, &mut rng);
        }
        scenario.enlarge_some_messages();
        scenario.draw_bounces();
        scenario.draw_attacks();
        scenario
    }

    /// Returns the id of the group with this number.
    pub fn group(number: u32) -> GroupId {
        GroupId(100 + number)
    }

    fn draw_acts(&mut self, rng: &mut Rng) {
        let mut at = Duration::ZERO;
        for host in 0..self.hosts {
            for group in 0..self.groups {
                if rng.chance(0.75) {
                    self.acts.push((at, Act::Join(HostIx(host), Self::group(group))));
                }
            }
        }
        if !matches!(self.views, Views::Roster(_)) {
            at += Duration::from_millis(rng.below(2000) as u64);
        }
        let pause_us = [2_000, 10_000, 40_000][rng.below(3)];
        for _ in 0..40 + rng.below(160) {
            at += Duration::from_micros(rng.below(pause_us) as u64);
            let fault = (rng.chance(0.12) && !self.kinds.is_empty())
                .then(|| self.kinds[rng.below(self.kinds.len())]);
            match fault {
                Some(kind) => self.acts.extend(self.cast().fault(at, kind, rng)),
                None => {
                    let act = self.draw_use(rng);
                    self.acts.push((at, act));
                }
            }
        }
        self.acts.sort_by_key(|(at, _)| *at);
    }

    /// Draws further changes for members that detect them by themselves: joins, leaves, stops,
    /// restarts, and partitions of up to 6 s, which is enough for each side to consider the other
    /// dead.
    fn draw_coming_and_going(&mut self, rng: &mut Rng) {
        let mut at = Duration::from_millis(rng.below(2000) as u64);
        for _ in 0..rng.below(12) {
            at += Duration::from_millis(rng.below(700) as u64);
            let (host, group) = (self.cast().any_host(rng), self.cast().any_group(rng));
            let spans_ms = [10, 1000, 2000, 6000];
            let end = at + Duration::from_millis(spans_ms[rng.below(spans_ms.len())]);
            match rng.below(6) {
                0 => self.acts.push((at, Act::Join(host, group))),
                1 => self.acts.push((at, Act::Leave(host, group))),
                2 => self.acts.push((at, Act::Stop(host))),
                3 => self.acts.extend([(at, Act::Stop(host)), (end, Act::Restart(host))]),
                4 => self.acts.extend([(at, Act::Crash(host)), (end, Act::Restart(host))]),
                _ => {
                    let cut = Fault::Partition(self.cast().some_hosts(rng));
                    self.acts.extend([(at, Act::Fault(cut)), (end, Act::Fault(Fault::Heal))]);
                }
            }
            for _ in 0..1 + rng.below(3) {
                let later = at + Duration::from_millis(rng.below(300) as u64);
                let act = self.draw_use(rng);
                self.acts.push((later, act));
            }
        }
        self.acts.sort_by_key(|(at, _)| *at);
    }

    /// Makes some messages larger than a packet, and a few larger than dozens of packets.
    /// Independent of all other draws.
    fn enlarge_some_messages(&mut self) {
        let mut rng = Rng::new(self.seed ^ 0x1a49e);
        for (_, act) in &mut self.acts {
            if let Act::Send { bytes, .. } = act
                && rng.chance(0.06)
            {
                let most = [4_000, 4_000, 15_000, 60_000][rng.below(4)];
                *bytes = 1_200 + rng.below(most);
            }
        }
    }

    /// Draws restarts of hosts that keep their ids, too fast for any membership to notice. Only the
    /// incarnations reveal them.
    fn draw_bounces(&mut self) {
        if let Some(bounces) = self.cast().bounces(self.seed, &self.acts) {
            self.acts.extend(bounces);
            self.acts.sort_by_key(|(at, _)| *at);
        }
    }

    /// Draws datagrams of an attacker, in some scenarios. Independent of all other draws.
    fn draw_attacks(&mut self) {
        if may_be_later(self.seed)
            && let Some(attacks) = self.cast().attacks(self.seed, &self.acts)
        {
            self.acts.extend(attacks);
            self.acts.sort_by_key(|(at, _)| *at);
        }
    }

    /// Returns `true` if members receive forgeries that they may accept as genuine: changed data,
    /// or claims in the name of a node that cannot be queried.
    pub(crate) fn is_deceived(&self) -> bool {
        let is_any = |holds: fn(&Act) -> bool| self.acts.iter().any(|(_, act)| holds(act));
        is_any(|act| matches!(act, Act::Forge(.., forgery) if forgery.can_deceive()))
            || is_any(|act| matches!(act, Act::Forge(.., forgery) if *forgery != Forgery::Gossip))
                && is_any(Act::can_silence)
    }

    fn draw_use(&self, rng: &mut Rng) -> Act {
        let (host, group) = (self.cast().any_host(rng), self.cast().any_group(rng));
        if rng.chance(0.05) {
            return Act::Confirm(host, group);
        }
        let most = if rng.chance(0.1) { 1000 } else { 200 };
        Act::Send {
            host,
            group,
            count: 1 + rng.below(8) as u32,
            bytes: 8 + rng.below(most),
            deadline: rng.chance(0.1).then_some(Duration::from_millis(30)),
        }
    }

    /// Returns the hosts and groups of the scenario.
    pub(super) fn cast(&self) -> Cast {
        let keeps_ids = keeps_ids(self.seed);
        let Self { hosts, groups, loss, .. } = *self;
        Cast { hosts, groups, loss, keeps_ids, distance: self.distance() }
    }

    /// Returns the delay of every path in addition to that of a local network: zero, except in one
    /// of 16 scenarios. It is zero for all views but those of a roster, because other providers are
    /// configured for local networks.
    fn distance(&self) -> Duration {
        let mut rng = Rng::new(self.seed ^ 0x006c_6f6e_6770);
        let distance = Duration::from_millis([5, 25, 100, 250][rng.below(4)]);
        let is_far = rng.below(16) == 0 && matches!(self.views, Views::Roster(_));
        if is_far && may_be_later(self.seed) { distance } else { Duration::ZERO }
    }
}

/// Returns the source of the changes of membership that only gossiping members have, and their time
/// of detection. Other draws do not depend on it, nor on the source of views.
fn coming_and_going(seed: u64) -> (Rng, Duration) {
    let mut rng = Rng::new(seed ^ 0x60551b);
    let detection_ms = [3000, 3000, 1000][rng.below(3)];
    (rng, Duration::from_millis(detection_ms))
}

impl Play for Scenario {
    type Act = Act;

    fn seed(&self) -> u64 {
        self.seed
    }

    fn acts(&self) -> &[(Duration, Act)] {
        &self.acts
    }

    fn with_acts(&self, acts: Vec<(Duration, Act)>) -> Self {
        Self { acts, ..self.clone() }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let acts = self.acts.iter().map(|(at, act)| (*at, act as &dyn fmt::Debug));
        write_scenario(f, self.cast(), self.views, &self.kinds, acts)
    }
}

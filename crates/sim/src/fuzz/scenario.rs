//! What happens in one run: drawn from a seed, in a form that can be printed and made smaller.

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

/// One run, but for the protocol's settings.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Where everything else comes from.
    pub seed: u64,
    /// How many hosts there are.
    pub hosts: u32,
    /// How many groups.
    pub groups: u32,
    /// Who tells the members of each other.
    pub views: Views,
    /// What every host loses from the start.
    pub loss: Loss,
    /// The kinds of faults that may happen: a random choice, so that rare combinations come up
    /// (swarm testing).
    pub kinds: Vec<Kind>,
    /// What happens, in order of time since the start.
    pub acts: Vec<(Duration, Act)>,
}

/// Who tells the members of each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Views {
    /// The world, after up to this time.
    Roster(Duration),
    /// The members, by gossip that finds a failure out within this time.
    Gossip(Duration),
    /// A membership service.
    Service(Service),
}

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A host is killed for good.
    Crash,
    /// A host is killed and comes back.
    Restart,
    /// A host stands still for a while.
    Pause,
    /// Some hosts and the others do not hear each other for a while.
    Partition,
    /// Some hosts do not hear some others for a while.
    OneWay,
    /// Datagrams come late, twice or damaged for a while.
    Disturb,
    /// A host loses much for a while.
    Loss,
    /// A host's clock is stepped.
    Clock,
    /// A host is slow for a while.
    Slow,
    /// A host takes another for dead for a while.
    Suspicion,
    /// A host leaves a group and joins it again.
    Churn,
}

/// One thing that happens.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// The host joins the group, unless it is in it.
    Join(HostIx, GroupId),
    /// The host leaves the group, if it is in it.
    Leave(HostIx, GroupId),
    /// The host sends messages.
    Send {
        /// Who.
        host: HostIx,
        /// Where.
        group: GroupId,
        /// How many.
        count: u32,
        /// Bytes in each.
        bytes: usize,
        /// How long they are of use.
        deadline: Option<Duration>,
    },
    /// The host asks the members for confirmation.
    Confirm(HostIx, GroupId),
    /// The host is killed.
    Crash(HostIx),
    /// The node on the host says that it stops, and does.
    Stop(HostIx),
    /// A host that is down comes back in the groups that it was in: as another node, or as another
    /// start of the same one.
    Restart(HostIx),
    /// A host is killed and comes back before anybody is told.
    Bounce(HostIx),
    /// The first host is told that the second has failed: a failure detector's mistake.
    Suspect(HostIx, HostIx),
    /// The first host is told that the second is there after all.
    Trust(HostIx, HostIx),
    /// Something else goes wrong or right.
    Fault(Fault),
    /// An attacker sends so many datagrams to the host.
    Forge(HostIx, u32, Forgery),
    /// A control process is killed.
    KillProcess(u32),
    /// A control process is started, unless it runs.
    StartProcess(u32),
    /// The service's store fails like this from now on, and loses this share of its answers.
    Store(Option<CommitFailure>, f64),
}

impl Kind {
    /// All of them.
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
    /// Returns `true` if somebody may not hear or not answer what it is asked.
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
    /// The scenario of `seed`: 5 to 20 hosts, some of the kinds of faults, a second or two.
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

    /// The groups of the run.
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

    /// What members that find out about each other must find out besides: some come and go for
    /// good, or in order, or are cut off for so long that each side takes the other for dead.
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

    /// Some messages do not fit a packet, a few not even dozens of them. They are drawn apart from
    /// everything else, which does not depend on them.
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

    /// Hosts that keep their ids are started again so fast that no membership notices: only their
    /// incarnations tell.
    fn draw_bounces(&mut self) {
        if let Some(bounces) = self.cast().bounces(self.seed, &self.acts) {
            self.acts.extend(bounces);
            self.acts.sort_by_key(|(at, _)| *at);
        }
    }

    /// In some scenarios somebody who is no member sends datagrams of its own, drawn apart from
    /// everything else.
    fn draw_attacks(&mut self) {
        if may_be_later(self.seed)
            && let Some(attacks) = self.cast().attacks(self.seed, &self.acts)
        {
            self.acts.extend(attacks);
            self.acts.sort_by_key(|(at, _)| *at);
        }
    }

    /// Returns `true` if members are sent what they may take for the word of others: data that was
    /// changed, or claims in the name of a node that cannot be asked.
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

    /// Who may do something, or have something done to them.
    pub(super) fn cast(&self) -> Cast {
        let keeps_ids = keeps_ids(self.seed);
        let Self { hosts, groups, loss, .. } = *self;
        Cast { hosts, groups, loss, keeps_ids, distance: self.distance() }
    }

    /// Delay of every path, besides that of a local network: none, but in one scenario of 16. The
    /// providers of views are set for local networks.
    fn distance(&self) -> Duration {
        let mut rng = Rng::new(self.seed ^ 0x006c_6f6e_6770);
        let distance = Duration::from_millis([5, 25, 100, 250][rng.below(4)]);
        let is_far = rng.below(16) == 0 && matches!(self.views, Views::Roster(_));
        if is_far && may_be_later(self.seed) { distance } else { Duration::ZERO }
    }
}

/// The source of what only members who gossip do, and how soon they find failures out: apart from
/// everything else, which does not depend on who tells the members of each other.
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

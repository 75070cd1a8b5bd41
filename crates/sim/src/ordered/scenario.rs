//! The events of one run of ordered groups: drawn from a seed, in a form that can be printed and
//! shrunk.

use core::fmt;
use core::time::Duration;

use carom_proto::loss::Loss;
use carom_proto::rmp::{Handler, LockName, Qos};
use carom_proto::{GroupId, Rng};

use crate::fuzz::cast::Cast;
use crate::fuzz::naming::keeps_ids;
use crate::fuzz::playing::{Play, write_scenario};
use crate::fuzz::{Act, Forgery, Kind, Views};
use crate::{Fault, HostIx};

/// One run, without the engines' settings.
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
    /// Kinds of faults that can occur: a random subset, which makes rare combinations more likely.
    pub kinds: Vec<Kind>,
    /// Steps of the run, in order of time since the start.
    pub deeds: Vec<(Duration, Deed)>,
}

/// One step of a scenario.
#[derive(Clone, Debug, PartialEq)]
pub enum Deed {
    /// A step that does not depend on the protocol.
    Act(Act),
    /// The host sends messages.
    Say {
        /// The sending host.
        host: HostIx,
        /// The group.
        group: GroupId,
        /// Number of messages.
        count: u32,
        /// Bytes in each.
        bytes: usize,
        /// Their quality of service; `None` draws one for each.
        qos: Option<Qos>,
    },
    /// The host requests a lock, and waits for it (`true`) or only tries.
    Lock(HostIx, GroupId, LockName, bool),
    /// The host releases the lock, if it has requested it.
    Unlock(HostIx, GroupId, LockName),
    /// The host makes a request to the group, of which it need not be a member.
    Call {
        /// The calling host.
        host: HostIx,
        /// The group.
        group: GroupId,
        /// Handler that is to reply.
        handler: Option<Handler>,
        /// Bytes of the request, and of the reply.
        bytes: usize,
    },
    /// The token site of the group is killed, with this number of members after it.
    CrashToken(GroupId, u32),
}

/// Time within which a leave completes. A member that rejoins sooner gives up its former life.
const LEAVE_TAKES: Duration = Duration::from_secs(3);

/// Qualities of service of messages.
pub(super) const LEVELS: [Qos; 9] = [
    Qos::Unreliable,
    Qos::Unordered,
    Qos::SourceOrdered,
    Qos::TotallyOrdered,
    Qos::Resilient(1),
    Qos::Resilient(2),
    Qos::Resilient(3),
    Qos::MajorityResilient,
    Qos::TotallyResilient,
];

impl Scenario {
    /// Returns the scenario of `seed`: 3 to 9 hosts, or 10 to 23 with a crowd, some of the kinds of
    /// faults, some seconds.
    pub fn of_seed(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x7074_656b);
        let hosts = 3 + rng.below(7) as u32 + crowd(seed);
        let groups = if rng.chance(0.8) { 1 } else { 2 };
        let delay = Duration::from_micros([0, 0, 5_000, 100_000][rng.below(4)]);
        let detection = Duration::from_millis([3000, 1000][rng.below(2)]);
        let views = if rng.chance(0.3) { Views::Gossip(detection) } else { Views::Roster(delay) };
        let losses = [
            Loss::None,
            Loss::None,
            Loss::Uniform(0.01),
            Loss::Uniform(0.05),
            Loss::Uniform(0.2),
            Loss::Burst { rate: 0.05, length: 10 },
            Loss::GilbertElliott { to_bad: 0.02, to_good: 0.2, loss_good: 0.005, loss_bad: 0.6 },
        ];
        let loss = losses[rng.below(losses.len())];
        let share = [0.1, 0.3, 0.6, 1.0][rng.below(4)];
        let kinds = Kind::ALL.into_iter().filter(|_| rng.chance(share)).collect();
        let mut scenario = Self { seed, hosts, groups, views, loss, kinds, deeds: Vec::new() };
        scenario.draw_deeds(&mut rng);
        scenario.draw_bounces();
        scenario.draw_storms();
        scenario.draw_attacks();
        scenario
    }

    pub(crate) fn cast(&self) -> Cast {
        let Self { hosts, groups, loss, .. } = *self;
        Cast { hosts, groups, loss, keeps_ids: keeps_ids(self.seed), distance: self.distance() }
    }

    /// Returns the delay of every path in addition to that of a local network: zero, except in one
    /// of 16 scenarios. It is zero with gossip, which is configured for local networks.
    pub(super) fn distance(&self) -> Duration {
        let mut rng = Rng::new(self.seed ^ 0x0064_6973_7461);
        let distance = [5, 15, 50, 100, 250][rng.below(5)];
        // The time and steps of a ring grow with its members and the distance, and steps are
        // limited.
        let may_be_far = self.hosts <= 8 && matches!(self.views, Views::Roster(_));
        let is_far = rng.below(16) == 0 && may_be_far;
        if is_far { Duration::from_millis(distance) } else { Duration::ZERO }
    }

    /// Draws the steps. Most hosts join at the beginning, some later. Messages come in bursts,
    /// often just before a fault, because faults affect the packets in flight.
    fn draw_deeds(&mut self, rng: &mut Rng) {
        let cast = self.cast();
        for host in (0..self.hosts).map(HostIx) {
            for group in (0..self.groups).map(crate::fuzz::Scenario::group) {
                let late = if rng.chance(0.2) { rng.below(3000) } else { rng.below(30) };
                if rng.chance(0.9) {
                    self.add(Duration::from_millis(late as u64), Act::Join(host, group));
                }
            }
        }
        let mut at = Duration::from_millis([0, 300, 1500][rng.below(3)]);
        let pause_us = [2_000, 10_000, 40_000, 100_000][rng.below(4)];
        let share = [0.05, 0.12, 0.3][rng.below(3)];
        let (has_locks, has_calls) = (rng.chance(0.6), rng.chance(0.4));
        // At least one host survives. A majority must be alive to continue.
        let mut deaths = rng.below(self.hosts as usize) as u32;
        for _ in 0..30 + rng.below(120) {
            at += Duration::from_micros(rng.below(pause_us) as u64);
            if has_locks && rng.chance(0.2) {
                self.lock(at, rng);
            }
            if has_calls && rng.chance(0.2) {
                self.call(at, rng);
            }
            if !rng.chance(share) {
                self.say(at, rng);
                continue;
            }
            if rng.chance(0.7) {
                self.say(at, rng);
            }
            match rng.below(8) {
                0 if deaths > 0 => {
                    let others = rng.below(deaths as usize) as u32;
                    deaths -= others + 1;
                    self.deeds.push((at, Deed::CrashToken(cast.any_group(rng), others)));
                }
                1 => self.cut_off_for_long(at, rng),
                2 => self.come_or_go(at, rng),
                _ => {
                    let Some(kind) = self.any_kind(rng) else { continue };
                    if kind == Kind::Crash {
                        if deaths == 0 {
                            continue;
                        }
                        deaths -= 1;
                    }
                    let acts = cast.fault(at, kind, rng);
                    acts.into_iter().for_each(|(at, act)| self.add(at, act));
                }
            }
        }
        self.deeds.sort_by_key(|(at, _)| *at);
    }

    /// Draws restarts of hosts that keep their ids, too fast for any membership to notice.
    fn draw_bounces(&mut self) {
        if let Some(bounces) = self.cast().bounces(self.seed, &self.deeds) {
            bounces.into_iter().for_each(|(at, act)| self.add(at, act));
            self.deeds.sort_by_key(|(at, _)| *at);
        }
    }

    /// Draws repeated requests of all hosts for one of few locks, in some scenarios. With a crowd,
    /// most hosts join at one time.
    fn draw_storms(&mut self) {
        if self.seed < STORMS_FROM {
            return;
        }
        let mut rng = Rng::new(self.seed ^ 0x570_6a11);
        if crowd(self.seed) > 0 {
            let at = Duration::from_millis(rng.below(2000) as u64);
            for (joined, deed) in &mut self.deeds {
                if matches!(deed, Deed::Act(Act::Join(..))) && rng.chance(0.8) {
                    *joined = at + Duration::from_micros(rng.below(1000) as u64);
                }
            }
        }
        for _ in 0..[0, 0, 0, 1, 5][rng.below(5)] {
            let near = self.deeds[rng.below(self.deeds.len())].0;
            let (group, name) =
                (self.cast().any_group(&mut rng), LockName(rng.below(2) as u64 + 4));
            for host in (0..self.hosts).map(HostIx) {
                let at = near + Duration::from_micros(rng.below(2000) as u64);
                self.deeds.push((at, Deed::Lock(host, group, name, rng.chance(0.9))));
                let end = at + Duration::from_millis(rng.below(40) as u64);
                self.deeds.push((end, Deed::Unlock(host, group, name)));
            }
        }
        self.deeds.sort_by_key(|(at, _)| *at);
    }

    /// Draws datagrams of an attacker, in some scenarios.
    fn draw_attacks(&mut self) {
        if self.seed < ATTACKS_FROM {
            return;
        }
        if let Some(attacks) = self.cast().attacks(self.seed, &self.deeds) {
            attacks.into_iter().for_each(|(at, act)| self.add(at, act));
            self.deeds.sort_by_key(|(at, _)| *at);
        }
    }

    /// Returns `true` if any datagram is forged.
    pub(super) fn is_attacked(&self) -> bool {
        self.forgeries().next().is_some()
    }

    /// Returns `true` if members receive forgeries that they may accept as genuine. A packet with
    /// another name in it claims to be from a node that they have not met.
    pub(super) fn is_deceived(&self) -> bool {
        self.forgeries().any(Forgery::can_deceive)
    }

    /// Returns `true` if a member may be partitioned, stopped or killed, or rejoins before its
    /// leave has completed.
    pub(super) fn is_silenced(&self) -> bool {
        let is_back = |(left_at, leave): &(Duration, Deed)| {
            let Deed::Act(Act::Leave(host, group)) = leave else { return false };
            self.deeds.iter().any(|(at, deed)| {
                let is_join = matches!(deed, Deed::Act(Act::Join(other, joined))
                    if (other, joined) == (host, group));
                is_join && at > left_at && *at < *left_at + LEAVE_TAKES
            })
        };
        self.deeds.iter().any(is_back)
            || self.deeds.iter().any(|(_, deed)| match deed {
                Deed::Act(Act::Leave(..) | Act::Fault(Fault::Loss(..))) => false,
                Deed::Act(act) => act.can_silence(),
                Deed::CrashToken(..) => true,
                _ => false,
            })
    }

    fn forgeries(&self) -> impl Iterator<Item = Forgery> {
        self.deeds.iter().filter_map(|(_, deed)| match deed {
            Deed::Act(Act::Forge(.., forgery)) => Some(*forgery),
            _ => None,
        })
    }

    fn any_kind(&self, rng: &mut Rng) -> Option<Kind> {
        (!self.kinds.is_empty()).then(|| self.kinds[rng.below(self.kinds.len())])
    }

    /// Draws a partition long enough for both sides to consider the other dead, with messages
    /// during it.
    fn cut_off_for_long(&mut self, at: Duration, rng: &mut Rng) {
        let end = at + Duration::from_millis([200, 1000, 3000][rng.below(3)]);
        self.add(at, Act::Fault(Fault::Partition(self.cast().some_hosts(rng))));
        self.add(end, Act::Fault(Fault::Heal));
        for _ in 0..rng.below(6) {
            self.say(at + (end - at).mul_f64(rng.fraction()), rng);
        }
    }

    fn come_or_go(&mut self, at: Duration, rng: &mut Rng) {
        let (host, group) = (self.cast().any_host(rng), self.cast().any_group(rng));
        match rng.below(3) {
            0 => self.add(at, Act::Join(host, group)),
            1 => self.add(at, Act::Leave(host, group)),
            _ => self.add(at, Act::Stop(host)),
        }
    }

    /// Draws a request for one of few locks, often followed by its release.
    fn lock(&mut self, at: Duration, rng: &mut Rng) {
        let (host, group) = (self.cast().any_host(rng), self.cast().any_group(rng));
        let name = LockName(rng.below(3) as u64 + 4);
        self.deeds.push((at, Deed::Lock(host, group, name, rng.chance(0.7))));
        if rng.chance(0.8) {
            let end = at + Duration::from_millis([0, 5, 50, 500][rng.below(4)]);
            self.deeds.push((end, Deed::Unlock(host, group, name)));
        }
    }

    /// Draws a request, in most cases for a handler whose lock is requested in the same runs.
    fn call(&mut self, at: Duration, rng: &mut Rng) {
        let (host, group) = (self.cast().any_host(rng), self.cast().any_group(rng));
        let number = 3 + rng.below(3) as u8;
        let handler = Handler::new(number).filter(|_| rng.chance(0.8));
        let most = if rng.chance(0.1) { 5_000 } else { 200 };
        let bytes = 8 + rng.below(most);
        self.deeds.push((at, Deed::Call { host, group, handler, bytes }));
    }

    fn say(&mut self, at: Duration, rng: &mut Rng) {
        let (host, group) = (self.cast().any_host(rng), self.cast().any_group(rng));
        let most = [200, 200, 200, 200, 200, 200, 2_000, 2_000, 8_000, 40_000][rng.below(10)];
        let is_of_one_level = rng.chance(0.5);
        let level = LEVELS[rng.below(LEVELS.len())];
        self.deeds.push((
            at,
            Deed::Say {
                host,
                group,
                count: 1 + rng.below(if most > 2_000 { 2 } else { 8 }) as u32,
                bytes: 8 + rng.below(most),
                qos: is_of_one_level.then_some(level),
            },
        ));
    }

    fn add(&mut self, at: Duration, act: Act) {
        self.deeds.push((at, Deed::Act(act)));
    }
}

/// Returns the number of additional hosts: many in one of ten scenarios, otherwise none.
/// Independent of all other draws.
fn crowd(seed: u64) -> u32 {
    let mut rng = Rng::new(seed ^ 0xc20_3d00);
    if seed >= STORMS_FROM && rng.chance(0.1) { 7 + rng.below(8) as u32 } else { 0 }
}

/// First seed of scenarios with crowds and storms of lock requests. Smaller seeds keep the
/// scenarios that they had.
const STORMS_FROM: u64 = 800_000_000;

/// First seed of scenarios with attacks, as for [`STORMS_FROM`].
const ATTACKS_FROM: u64 = 1_000_000_000;

impl Play for Scenario {
    type Act = Deed;

    fn seed(&self) -> u64 {
        self.seed
    }

    fn acts(&self) -> &[(Duration, Deed)] {
        &self.deeds
    }

    fn with_acts(&self, deeds: Vec<(Duration, Deed)>) -> Self {
        Self { deeds, ..self.clone() }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let deeds = self.deeds.iter().map(|(at, deed)| match deed {
            Deed::Act(act) => (*at, act as &dyn fmt::Debug),
            _ => (*at, deed as &dyn fmt::Debug),
        });
        write_scenario(f, self.cast(), self.views, &self.kinds, deeds)
    }
}

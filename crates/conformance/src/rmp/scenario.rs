use core::time::Duration;

use carom_proto::loss::Loss;
use carom_proto::ring::{Handler, LockName, Qos};
use carom_proto::{GroupId, Rng};
use carom_sim::scenario::Scenario;
use carom_sim::{Fault, HostIx};

use crate::draft::Draft;
use crate::participants::{Participants, Views};
use crate::seeds::keeps_ids;
use crate::step::{Forgery, Kind, Step};

/// An action of an application, or a fault that depends on the ring.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    Send {
        host: HostIx,
        group: GroupId,
        count: u32,
        bytes: usize,
        /// Quality of service of the messages. With `None`, it is drawn for each message.
        qos: Option<Qos>,
    },
    /// The host requests a lock. If the flag is `false`, it does not wait for the lock.
    Lock(HostIx, GroupId, LockName, bool),
    Unlock(HostIx, GroupId, LockName),
    Request {
        host: HostIx,
        group: GroupId,
        handler: Option<Handler>,
        /// Size, in bytes, of the request, and of the reply.
        bytes: usize,
    },
    /// The token site of the group is killed, with this number of members after it.
    CrashToken(GroupId, u32),
}

/// Time within which a leave completes. A member that rejoins earlier gives up its former life.
const LEAVE_TAKES: Duration = Duration::from_secs(3);

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

/// Creates the scenario of `seed`, with 3 to 9 hosts, or 10 to 23 with a crowd, and a random subset
/// of all kinds of faults.
pub fn scenario(seed: u64) -> Scenario<Participants, Step<Action>> {
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
    let (keeps_ids, distance) = (keeps_ids(seed), distance(seed, hosts, views));
    let participants = Participants { hosts, groups, views, loss, kinds, keeps_ids, distance };
    let mut draft = Draft { participants, steps: Vec::new() };
    draft.draw_steps(&mut rng);
    draft.draw_bounces(seed);
    if seed >= STORMS_FROM {
        draft.draw_storms(seed);
    }
    if seed >= ATTACKS_FROM {
        draft.draw_attacks(seed);
    }
    Scenario { seed, participants: draft.participants, steps: draft.steps }
}

pub(super) fn is_attacked(steps: &[(Duration, Step<Action>)]) -> bool {
    steps.iter().any(|(_, step)| step.forgery().is_some())
}

/// Returns `true` if members receive forgeries that they may accept as genuine. For example, a
/// mutated packet can name a sender that they have not met.
pub(super) fn is_deceived(steps: &[(Duration, Step<Action>)]) -> bool {
    steps.iter().filter_map(|(_, step)| step.forgery()).any(Forgery::can_deceive)
}

/// Returns `true` if a member may be silent, or may rejoin before its leave has completed.
pub(super) fn is_silenced(steps: &[(Duration, Step<Action>)]) -> bool {
    let is_back = |(left_at, leave): &(Duration, Step<Action>)| {
        let Step::Leave(host, group) = leave else { return false };
        steps.iter().any(|(at, step)| {
            let is_join = matches!(step, Step::Join(other, joined)
                if (other, joined) == (host, group));
            is_join && at > left_at && *at < *left_at + LEAVE_TAKES
        })
    };
    steps.iter().any(is_back)
        || steps.iter().any(|(_, step)| match step {
            Step::Leave(..) | Step::Fault(Fault::Loss(..)) => false,
            Step::Act(Action::CrashToken(..)) => true,
            step => step.can_silence(),
        })
}

/// Returns the delay of every path in addition to that of a local network, which is above zero in
/// one of 16 scenarios. It is always zero with gossip, and with more than 8 hosts.
fn distance(seed: u64, hosts: u32, views: Views) -> Duration {
    let mut rng = Rng::new(seed ^ 0x0064_6973_7461);
    let distance = [5, 15, 50, 100, 250][rng.below(5)];
    // The time and steps of a ring grow with its members and the distance, and steps are limited.
    let may_be_far = hosts <= 8 && views.is_roster();
    let is_far = rng.below(16) == 0 && may_be_far;
    if is_far { Duration::from_millis(distance) } else { Duration::ZERO }
}

impl Draft<Action> {
    /// Draws bursts of messages, often just before a fault, which then affects packets in flight.
    fn draw_steps(&mut self, rng: &mut Rng) {
        for host in (0..self.participants.hosts).map(HostIx) {
            for group in (0..self.participants.groups).map(Participants::group) {
                let late = if rng.chance(0.2) { rng.below(3000) } else { rng.below(30) };
                if rng.chance(0.9) {
                    self.add(Duration::from_millis(late as u64), Step::Join(host, group));
                }
            }
        }
        let mut at = Duration::from_millis([0, 300, 1500][rng.below(3)]);
        let pause_us = [2_000, 10_000, 40_000, 100_000][rng.below(4)];
        let share = [0.05, 0.12, 0.3][rng.below(3)];
        let (has_locks, has_requests) = (rng.chance(0.6), rng.chance(0.4));
        // At least one host survives. A majority must be alive to continue.
        let mut deaths = rng.below(self.participants.hosts as usize) as u32;
        for _ in 0..30 + rng.below(120) {
            at += Duration::from_micros(rng.below(pause_us) as u64);
            if has_locks && rng.chance(0.2) {
                self.lock(at, rng);
            }
            if has_requests && rng.chance(0.2) {
                self.request(at, rng);
            }
            if !rng.chance(share) {
                self.send(at, rng);
                continue;
            }
            if rng.chance(0.7) {
                self.send(at, rng);
            }
            match rng.below(8) {
                0 if deaths > 0 => {
                    let others = rng.below(deaths as usize) as u32;
                    deaths -= others + 1;
                    let group = self.participants.any_group(rng);
                    self.add(at, Step::Act(Action::CrashToken(group, others)));
                }
                1 => self.partition_for_long(at, rng),
                2 => self.join_or_leave(at, rng),
                _ => {
                    let Some(kind) = self.any_kind(rng) else { continue };
                    if kind == Kind::Crash {
                        if deaths == 0 {
                            continue;
                        }
                        deaths -= 1;
                    }
                    self.draw_fault(at, kind, rng);
                }
            }
        }
        self.sort();
    }

    /// Draws repeated requests of all hosts for one of few locks, in some scenarios. With a crowd,
    /// most hosts join at the same time.
    fn draw_storms(&mut self, seed: u64) {
        let mut rng = Rng::new(seed ^ 0x570_6a11);
        if crowd(seed) > 0 {
            let at = Duration::from_millis(rng.below(2000) as u64);
            for (joined, step) in &mut self.steps {
                if matches!(step, Step::Join(..)) && rng.chance(0.8) {
                    *joined = at + Duration::from_micros(rng.below(1000) as u64);
                }
            }
        }
        for _ in 0..[0, 0, 0, 1, 5][rng.below(5)] {
            let near = self.steps[rng.below(self.steps.len())].0;
            let (group, name) =
                (self.participants.any_group(&mut rng), LockName(rng.below(2) as u64 + 4));
            for host in (0..self.participants.hosts).map(HostIx) {
                let at = near + Duration::from_micros(rng.below(2000) as u64);
                self.add(at, Step::Act(Action::Lock(host, group, name, rng.chance(0.9))));
                let end = at + Duration::from_millis(rng.below(40) as u64);
                self.add(end, Step::Act(Action::Unlock(host, group, name)));
            }
        }
        self.sort();
    }

    /// Draws a partition in which each side can declare the other dead, with messages during it.
    fn partition_for_long(&mut self, at: Duration, rng: &mut Rng) {
        let end = at + Duration::from_millis([200, 1000, 3000][rng.below(3)]);
        self.add(at, Step::Fault(Fault::Partition(self.participants.some_hosts(rng))));
        self.add(end, Step::Fault(Fault::Heal));
        for _ in 0..rng.below(6) {
            self.send(at + (end - at).mul_f64(rng.fraction()), rng);
        }
    }

    fn join_or_leave(&mut self, at: Duration, rng: &mut Rng) {
        let (host, group) = self.any_target(rng);
        match rng.below(3) {
            0 => self.add(at, Step::Join(host, group)),
            1 => self.add(at, Step::Leave(host, group)),
            _ => self.add(at, Step::Stop(host)),
        }
    }

    fn lock(&mut self, at: Duration, rng: &mut Rng) {
        let (host, group) = self.any_target(rng);
        let name = LockName(rng.below(3) as u64 + 4);
        self.add(at, Step::Act(Action::Lock(host, group, name, rng.chance(0.7))));
        if rng.chance(0.8) {
            let end = at + Duration::from_millis([0, 5, 50, 500][rng.below(4)]);
            self.add(end, Step::Act(Action::Unlock(host, group, name)));
        }
    }

    /// Draws a request, in most cases for a handler whose lock is requested in the same runs.
    fn request(&mut self, at: Duration, rng: &mut Rng) {
        let (host, group) = self.any_target(rng);
        let number = 3 + rng.below(3) as u8;
        let handler = Handler::new(number).filter(|_| rng.chance(0.8));
        let most = if rng.chance(0.1) { 5_000 } else { 200 };
        let bytes = 8 + rng.below(most);
        self.add(at, Step::Act(Action::Request { host, group, handler, bytes }));
    }

    fn send(&mut self, at: Duration, rng: &mut Rng) {
        let (host, group) = self.any_target(rng);
        let most = [200, 200, 200, 200, 200, 200, 2_000, 2_000, 8_000, 40_000][rng.below(10)];
        let is_of_one_level = rng.chance(0.5);
        let level = LEVELS[rng.below(LEVELS.len())];
        let count = 1 + rng.below(if most > 2_000 { 2 } else { 8 }) as u32;
        let (bytes, qos) = (8 + rng.below(most), is_of_one_level.then_some(level));
        self.add(at, Step::Act(Action::Send { host, group, count, bytes, qos }));
    }
}

fn crowd(seed: u64) -> u32 {
    let mut rng = Rng::new(seed ^ 0xc20_3d00);
    if seed >= STORMS_FROM && rng.chance(0.1) { 7 + rng.below(8) as u32 } else { 0 }
}

/// First seed of scenarios with crowds and storms of lock requests. Smaller seeds have neither.
const STORMS_FROM: u64 = 800_000_000;

/// First seed of scenarios with attacks. Scenarios of smaller seeds are unchanged.
const ATTACKS_FROM: u64 = 1_000_000_000;

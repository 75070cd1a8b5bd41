use core::time::Duration;

use carom_proto::loss::Loss;
use carom_proto::{GroupId, Rng};
use carom_sim::scenario::Scenario;
use carom_sim::{Fault, HostIx};

use crate::draft::Draft;
use crate::participants::{Participants, Views};
use crate::providers::{FaultPlan, service};
use crate::seeds::{keeps_ids, may_be_later};
use crate::step::{Forgery, Kind, Step};

#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    Send { host: HostIx, group: GroupId, count: u32, bytes: usize, deadline: Option<Duration> },
    Confirm(HostIx, GroupId),
}

/// Draws the scenario of `seed`, with 5 to 20 hosts and a random subset of all kinds of faults.
pub fn scenario(seed: u64) -> Scenario<Participants, Step<Action>> {
    let mut rng = Rng::new(seed);
    let most = if rng.chance(0.7) { 4 } else { 16 };
    let hosts = 5 + rng.below(most) as u32;
    let groups = 1 + rng.below(4) as u32;
    let delay = [0, 0, 5_000, 100_000][rng.below(4)];
    let views = match rng.below(4) {
        0 => Views::Gossip(coming_and_going(seed).1),
        _ => match service::of_seed(seed).1 {
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
    let (keeps_ids, distance) = (keeps_ids(seed), distance(seed, views));
    let participants = Participants { hosts, groups, views, loss, kinds, keeps_ids, distance };
    let mut draft = Draft { participants, steps: Vec::new() };
    draft.draw_steps(&mut rng);
    if !views.is_roster() {
        let (mut rng, _) = coming_and_going(seed);
        draft.draw_coming_and_going(&mut rng);
    }
    if let Views::Service(service) = views {
        let (mut rng, _) = service::of_seed(seed);
        FaultPlan { service, hosts, loss }.draw(&mut rng, &mut draft.steps);
    }
    draft.enlarge_some_messages(seed);
    draft.draw_bounces(seed);
    if may_be_later(seed) {
        draft.draw_attacks(seed);
    }
    Scenario { seed, participants: draft.participants, steps: draft.steps }
}

/// Returns `true` if members may accept a forgery: a modified datagram, or any other except gossip
/// while its apparent sender may be silent.
pub(super) fn is_deceived(steps: &[(Duration, Step<Action>)]) -> bool {
    let forgeries = || steps.iter().filter_map(|(_, step)| step.forgery());
    forgeries().any(Forgery::can_deceive)
        || forgeries().any(|forgery| forgery != Forgery::Gossip)
            && steps.iter().any(|(_, step)| step.can_silence())
}

impl Draft<Action> {
    fn draw_steps(&mut self, rng: &mut Rng) {
        let mut at = Duration::ZERO;
        for host in 0..self.participants.hosts {
            for group in 0..self.participants.groups {
                if rng.chance(0.75) {
                    self.add(at, Step::Join(HostIx(host), Participants::group(group)));
                }
            }
        }
        if !self.participants.views.is_roster() {
            at += Duration::from_millis(rng.below(2000) as u64);
        }
        let pause_us = [2_000, 10_000, 40_000][rng.below(3)];
        for _ in 0..40 + rng.below(160) {
            at += Duration::from_micros(rng.below(pause_us) as u64);
            let fault = if rng.chance(0.12) { self.any_kind(rng) } else { None };
            match fault {
                Some(kind) => self.draw_fault(at, kind, rng),
                None => {
                    let action = self.draw_action(rng);
                    self.add(at, action);
                }
            }
        }
        self.sort();
    }

    /// Draws further changes for members that detect them by themselves: joins, leaves, stops,
    /// restarts, and partitions. A partition of up to 6 s lets each side declare the other dead.
    fn draw_coming_and_going(&mut self, rng: &mut Rng) {
        let mut at = Duration::from_millis(rng.below(2000) as u64);
        for _ in 0..rng.below(12) {
            at += Duration::from_millis(rng.below(700) as u64);
            let (host, group) = self.any_target(rng);
            let spans_ms = [10, 1000, 2000, 6000];
            let end = at + Duration::from_millis(spans_ms[rng.below(spans_ms.len())]);
            match rng.below(6) {
                0 => self.add(at, Step::Join(host, group)),
                1 => self.add(at, Step::Leave(host, group)),
                2 => self.add(at, Step::Stop(host)),
                3 => self.steps.extend([(at, Step::Stop(host)), (end, Step::Restart(host))]),
                4 => self.steps.extend([(at, Step::Crash(host)), (end, Step::Restart(host))]),
                _ => {
                    let cut = Fault::Partition(self.participants.some_hosts(rng));
                    self.steps.extend([(at, Step::Fault(cut)), (end, Step::Fault(Fault::Heal))]);
                }
            }
            for _ in 0..1 + rng.below(3) {
                let later = at + Duration::from_millis(rng.below(300) as u64);
                let action = self.draw_action(rng);
                self.add(later, action);
            }
        }
        self.sort();
    }

    /// Enlarges some messages to several or dozens of packets. The draw is independent of others.
    fn enlarge_some_messages(&mut self, seed: u64) {
        let mut rng = Rng::new(seed ^ 0x1a49e);
        for (_, step) in &mut self.steps {
            if let Step::Act(Action::Send { bytes, .. }) = step
                && rng.chance(0.06)
            {
                let most = [4_000, 4_000, 15_000, 60_000][rng.below(4)];
                *bytes = 1_200 + rng.below(most);
            }
        }
    }

    fn draw_action(&self, rng: &mut Rng) -> Step<Action> {
        let (host, group) = self.any_target(rng);
        if rng.chance(0.05) {
            return Step::Act(Action::Confirm(host, group));
        }
        let most = if rng.chance(0.1) { 1000 } else { 200 };
        Step::Act(Action::Send {
            host,
            group,
            count: 1 + rng.below(8) as u32,
            bytes: 8 + rng.below(most),
            deadline: rng.chance(0.1).then_some(Duration::from_millis(30)),
        })
    }
}

/// Returns the delay of every path in addition to that of a local network, which is above zero in
/// one of 16 scenarios. It is zero without a roster, because other providers suit local networks.
fn distance(seed: u64, views: Views) -> Duration {
    let mut rng = Rng::new(seed ^ 0x006c_6f6e_6770);
    let distance = Duration::from_millis([5, 25, 100, 250][rng.below(4)]);
    let is_far = rng.below(16) == 0 && views.is_roster();
    if is_far && may_be_later(seed) { distance } else { Duration::ZERO }
}

/// Returns the generator and the detection time, independent of other draws and of the views.
fn coming_and_going(seed: u64) -> (Rng, Duration) {
    let mut rng = Rng::new(seed ^ 0x60551b);
    let detection_ms = [3000, 3000, 1000][rng.below(3)];
    (rng, Duration::from_millis(detection_ms))
}

use core::time::Duration;

use carom_proto::loss::Loss;
use carom_proto::{GroupId, Rng};
use carom_sim::{Disturbance, Fault, HostIx};

use crate::participants::Participants;
use crate::step::{Forgery, Kind, Step};

pub(crate) struct Draft<A> {
    pub(crate) participants: Participants,
    pub(crate) steps: Vec<(Duration, Step<A>)>,
}

impl<A> Draft<A> {
    pub(crate) fn add(&mut self, at: Duration, step: Step<A>) {
        self.steps.push((at, step));
    }

    pub(crate) fn sort(&mut self) {
        self.steps.sort_by_key(|(at, _)| *at);
    }

    pub(crate) fn any_target(&self, rng: &mut Rng) -> (HostIx, GroupId) {
        (self.participants.any_host(rng), self.participants.any_group(rng))
    }

    pub(crate) fn any_kind(&self, rng: &mut Rng) -> Option<Kind> {
        let kinds = &self.participants.kinds;
        (!kinds.is_empty()).then(|| kinds[rng.below(kinds.len())])
    }

    /// Draws restarts that only the incarnations of the hosts reveal.
    pub(crate) fn draw_bounces(&mut self, seed: u64) {
        let mut rng = Rng::new(seed ^ 0xb00_7e4a);
        if !self.participants.keeps_ids || self.steps.is_empty() || !rng.chance(0.6) {
            return;
        }
        let count = 1 + rng.below(4);
        let mut bounce = || {
            let at = self.soon_after_any(&mut rng);
            (at, Step::Bounce(self.participants.any_host(&mut rng)))
        };
        let bounces: Vec<_> = (0..count).map(|_| bounce()).collect();
        self.steps.extend(bounces);
        self.sort();
    }

    /// Draws an attacker's datagrams close to other steps, in some scenarios.
    pub(crate) fn draw_attacks(&mut self, seed: u64) {
        let mut rng = Rng::new(seed ^ 0xf026_ed00);
        if self.steps.is_empty() || !rng.chance(0.15) {
            return;
        }
        let common = Forgery::COMMON.into_iter().filter(|_| rng.chance(0.5));
        let mut kinds: Vec<Forgery> = common.collect();
        if Rng::new(seed ^ 0x6865_6172).chance(0.5) {
            kinds.push(Forgery::Gossip);
        }
        let mut attack = |forgery| {
            let at = self.soon_after_any(&mut rng);
            let host = self.participants.any_host(&mut rng);
            (at, Step::Forge(host, 1 + rng.below(30) as u32, forgery))
        };
        let each = kinds.into_iter().flat_map(|forgery| [forgery; 6]);
        let attacks: Vec<_> = each.map(&mut attack).collect();
        self.steps.extend(attacks);
        self.sort();
    }

    pub(crate) fn draw_fault(&mut self, at: Duration, kind: Kind, rng: &mut Rng) {
        let all = &self.participants;
        let host = all.any_host(rng);
        let spans_ms = [1, 10, 100, 600, 4000];
        let end = at + Duration::from_millis(spans_ms[rng.below(spans_ms.len())]);
        let fault = |begins, ends| vec![(at, Step::Fault(begins)), (end, Step::Fault(ends))];
        let steps = match kind {
            Kind::Crash => vec![(at, Step::Crash(host))],
            Kind::Restart => vec![(at, Step::Crash(host)), (end, Step::Restart(host))],
            Kind::Pause => fault(Fault::Pause(host), Fault::Resume(host)),
            Kind::Partition => fault(Fault::Partition(all.some_hosts(rng)), Fault::Heal),
            Kind::OneWay => {
                let (from, to) = (all.some_hosts(rng), all.some_hosts(rng));
                fault(Fault::OneWay(from, to), Fault::Heal)
            }
            Kind::Disturb => {
                let disturbance = Disturbance {
                    reorder: [0.0, 0.1, 0.5][rng.below(3)],
                    duplicate: [0.0, 0.05, 0.3][rng.below(3)],
                    corrupt: [0.0, 0.01, 0.1][rng.below(3)],
                    spread: Duration::from_micros([500, 20_000, 300_000][rng.below(3)]),
                };
                fault(Fault::Disturb(disturbance), Fault::Disturb(Disturbance::default()))
            }
            Kind::Loss => {
                let loss = Loss::Uniform([0.1, 0.5, 1.0][rng.below(3)]);
                fault(Fault::Loss(host, loss), Fault::Loss(host, all.loss))
            }
            Kind::Clock => {
                let by_ms = [-40, -5, 5, 40, 1000, 20_000][rng.below(6)];
                vec![(at, Step::Fault(Fault::ClockStep(host, by_ms * 1_000_000)))]
            }
            Kind::Slow => {
                let extra = Duration::from_micros([50, 500, 5_000][rng.below(3)]);
                fault(Fault::Slow(host, extra), Fault::Slow(host, Duration::ZERO))
            }
            Kind::Suspicion => {
                let other = all.any_host(rng);
                vec![(at, Step::Suspect(host, other)), (end, Step::Trust(host, other))]
            }
            Kind::Churn => {
                let group = all.any_group(rng);
                vec![(at, Step::Leave(host, group)), (end, Step::Join(host, group))]
            }
        };
        self.steps.extend(steps);
    }

    fn soon_after_any(&self, rng: &mut Rng) -> Duration {
        let near = self.steps[rng.below(self.steps.len())].0;
        near + Duration::from_micros(rng.below(20_000) as u64)
    }
}

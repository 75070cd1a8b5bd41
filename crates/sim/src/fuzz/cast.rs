//! The hosts and groups of a scenario, and the faults that can be drawn for them.

use core::time::Duration;

use carom_proto::loss::Loss;
use carom_proto::{GroupId, Rng};

use super::attacker::Forgery;
use super::scenario::{Act, Kind, Scenario};
use crate::{Disturbance, Fault, HostIx};

/// The hosts and the groups of a scenario.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cast {
    pub(crate) hosts: u32,
    pub(crate) groups: u32,
    /// Loss of every host, unless a fault replaces it.
    pub(crate) loss: Loss,
    /// `true` if a restarted host keeps its id.
    pub(crate) keeps_ids: bool,
    /// Delay of every path, in addition to that of a local network.
    pub(crate) distance: Duration,
}

impl Cast {
    pub(crate) fn any_host(self, rng: &mut Rng) -> HostIx {
        HostIx(rng.below(self.hosts as usize) as u32)
    }

    pub(crate) fn any_group(self, rng: &mut Rng) -> GroupId {
        Scenario::group(rng.below(self.groups as usize) as u32)
    }

    pub(crate) fn some_hosts(self, rng: &mut Rng) -> Vec<HostIx> {
        (0..self.hosts).filter(|_| rng.chance(0.4)).map(HostIx).collect()
    }

    /// Draws immediate restarts of hosts under their ids, in some scenarios, close to other steps.
    pub(crate) fn bounces<T>(
        self,
        seed: u64,
        others: &[(Duration, T)],
    ) -> Option<Vec<(Duration, Act)>> {
        let mut rng = Rng::new(seed ^ 0xb00_7e4a);
        if !self.keeps_ids || others.is_empty() || !rng.chance(0.6) {
            return None;
        }
        let count = 1 + rng.below(4);
        let mut bounce = || {
            let at = soon_after_any(others, &mut rng);
            (at, Act::Bounce(self.any_host(&mut rng)))
        };
        Some((0..count).map(|_| bounce()).collect())
    }

    /// Draws datagrams of an attacker, in some scenarios, close to other steps.
    pub(crate) fn attacks<T>(
        self,
        seed: u64,
        others: &[(Duration, T)],
    ) -> Option<Vec<(Duration, Act)>> {
        let mut rng = Rng::new(seed ^ 0xf026_ed00);
        if others.is_empty() || !rng.chance(0.15) {
            return None;
        }
        let common = Forgery::COMMON.into_iter().filter(|_| rng.chance(0.5));
        let mut kinds: Vec<Forgery> = common.collect();
        if Rng::new(seed ^ 0x6865_6172).chance(0.5) {
            kinds.push(Forgery::Gossip);
        }
        let mut attack = |forgery| {
            let at = soon_after_any(others, &mut rng);
            (at, Act::Forge(self.any_host(&mut rng), 1 + rng.below(30) as u32, forgery))
        };
        let each = kinds.into_iter().flat_map(|forgery| [forgery; 6]);
        Some(each.map(&mut attack).collect())
    }

    /// Draws a fault, and its end if it has one.
    pub(crate) fn fault(self, at: Duration, kind: Kind, rng: &mut Rng) -> Vec<(Duration, Act)> {
        let host = self.any_host(rng);
        let spans_ms = [1, 10, 100, 600, 4000];
        let end = at + Duration::from_millis(spans_ms[rng.below(spans_ms.len())]);
        let fault = |begins, ends| vec![(at, Act::Fault(begins)), (end, Act::Fault(ends))];
        match kind {
            Kind::Crash => vec![(at, Act::Crash(host))],
            Kind::Restart => vec![(at, Act::Crash(host)), (end, Act::Restart(host))],
            Kind::Pause => fault(Fault::Pause(host), Fault::Resume(host)),
            Kind::Partition => fault(Fault::Partition(self.some_hosts(rng)), Fault::Heal),
            Kind::OneWay => {
                let (from, to) = (self.some_hosts(rng), self.some_hosts(rng));
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
                fault(Fault::Loss(host, loss), Fault::Loss(host, self.loss))
            }
            Kind::Clock => {
                let by_ms = [-40, -5, 5, 40, 1000, 20_000][rng.below(6)];
                vec![(at, Act::Fault(Fault::ClockStep(host, by_ms * 1_000_000)))]
            }
            Kind::Slow => {
                let extra = Duration::from_micros([50, 500, 5_000][rng.below(3)]);
                fault(Fault::Slow(host, extra), Fault::Slow(host, Duration::ZERO))
            }
            Kind::Suspicion => {
                let other = self.any_host(rng);
                vec![(at, Act::Suspect(host, other)), (end, Act::Trust(host, other))]
            }
            Kind::Churn => {
                let group = self.any_group(rng);
                vec![(at, Act::Leave(host, group)), (end, Act::Join(host, group))]
            }
        }
    }
}

/// Draws a time up to 20 ms after another step.
fn soon_after_any<T>(others: &[(Duration, T)], rng: &mut Rng) -> Duration {
    let near = others[rng.below(others.len())].0;
    near + Duration::from_micros(rng.below(20_000) as u64)
}

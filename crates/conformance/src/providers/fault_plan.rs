use core::time::Duration;

use carom_proto::Rng;
use carom_proto::loss::Loss;
use carom_proto::membership::service::CommitFailure;
use carom_sim::{Fault, HostIx};

use super::service::Service;
use crate::step::Step;

#[derive(Clone, Copy, Debug)]
enum ServiceFault {
    Killed,
    Restarted,
    Paused,
    /// Some hosts of members and of the registry are partitioned from the others for a while.
    CutOff,
    /// The store refuses all requests, or does not answer, for a while.
    StoreFails,
    AnswersLost,
    Clock,
    Loss,
}

impl ServiceFault {
    const ALL: [Self; 8] = [
        Self::Killed,
        Self::Restarted,
        Self::Paused,
        Self::CutOff,
        Self::StoreFails,
        Self::AnswersLost,
        Self::Clock,
        Self::Loss,
    ];
}

pub(crate) struct FaultPlan {
    pub(crate) service: Service,
    pub(crate) hosts: u32,
    pub(crate) loss: Loss,
}

impl FaultPlan {
    pub(crate) fn draw<A>(&self, rng: &mut Rng, steps: &mut Vec<(Duration, Step<A>)>) {
        let mut at = Duration::from_millis(rng.below(2000) as u64);
        let kinds = ServiceFault::ALL.into_iter().filter(|_| rng.chance(0.5));
        let kinds: Vec<ServiceFault> = kinds.collect();
        if kinds.is_empty() {
            return;
        }
        for _ in 0..rng.below(10) {
            at += Duration::from_millis(rng.below(900) as u64);
            let kind = kinds[rng.below(kinds.len())];
            let spans_ms = [10, 300, 1500, 6000];
            let end = at + Duration::from_millis(spans_ms[rng.below(spans_ms.len())]);
            let (begins, ends) = self.draw_one(kind, rng);
            steps.push((at, begins));
            steps.extend(ends.map(|step| (end, step)));
        }
        steps.sort_by_key(|(at, _)| *at);
    }

    fn draw_one<A>(&self, kind: ServiceFault, rng: &mut Rng) -> (Step<A>, Option<Step<A>>) {
        let service = self.service;
        let process = rng.below(service.processes as usize) as u32;
        let host = HostIx(self.hosts + process);
        let fault = |begins, ends| (Step::Fault(begins), Some(Step::Fault(ends)));
        match kind {
            ServiceFault::Killed => (Step::KillProcess(process), None),
            ServiceFault::Restarted => {
                (Step::KillProcess(process), Some(Step::StartProcess(process)))
            }
            ServiceFault::Paused => fault(Fault::Pause(host), Fault::Resume(host)),
            ServiceFault::CutOff => {
                let all = (0..self.hosts + service.hosts()).map(HostIx);
                let some = all.filter(|_| rng.chance(0.4)).collect();
                fault(Fault::Partition(some), Fault::Heal)
            }
            ServiceFault::StoreFails => {
                let failures = [CommitFailure::Full, CommitFailure::Failed, CommitFailure::Unknown];
                let failing = Some(failures[rng.below(failures.len())]);
                (Step::Store(failing, 0.0), Some(Step::Store(None, 0.0)))
            }
            ServiceFault::AnswersLost => {
                let share = [0.1, 0.5][rng.below(2)];
                (Step::Store(None, share), Some(Step::Store(None, 0.0)))
            }
            ServiceFault::Clock => {
                let by_ms = [-40, 40, 1000, 20_000][rng.below(4)];
                (Step::Fault(Fault::ClockStep(host, by_ms * 1_000_000)), None)
            }
            ServiceFault::Loss => {
                let loss = Loss::Uniform([0.1, 0.5, 1.0][rng.below(3)]);
                fault(Fault::Loss(host, loss), Fault::Loss(host, self.loss))
            }
        }
    }
}

//! The membership service of a scenario, and its faults.

use core::time::Duration;

use carom_proto::Rng;
use carom_proto::loss::Loss;
use carom_proto::membership::service::CommitFailure;

use super::scenario::{Act, Scenario};
use crate::{Fault, HostIx};

/// The membership service of a run.
///
/// Its hosts follow those of the members: those of the control processes, that of the store if
/// there are several processes, then those of the detectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Service {
    /// Number of control processes. A single one has its store in its own machine.
    pub processes: u32,
    /// Maximum time for which a node may be silent.
    pub lease: Duration,
    /// Failure detection in addition to leases.
    pub watch: Watch,
}

/// Failure detection in addition to leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// None.
    Leases,
    /// Each node pings the next one.
    Ring,
    /// Two failure detectors in a chain, each for one rack.
    Chain,
}

/// A kind of fault of the service.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    /// A control process is killed for good.
    Killed,
    /// A control process is killed and restarted.
    Restarted,
    /// A control process is paused for a while.
    Paused,
    /// Some hosts of members and of the service are partitioned from the others for a while.
    CutOff,
    /// The store refuses all requests, or does not answer, for a while.
    StoreFails,
    /// Answers of the store are lost for a while.
    AnswersLost,
    /// The clock of a process is stepped.
    Clock,
    /// The host of a process loses many datagrams for a while.
    Loss,
}

impl Trouble {
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

/// Returns the source of the service's faults, and the service of this seed if it has one.
pub(super) fn service_of(seed: u64) -> (Rng, Option<Service>) {
    let mut rng = Rng::new(seed ^ 0x5e47_1ce5);
    let service = Service {
        processes: [1, 2, 3][rng.below(3)],
        lease: Duration::from_millis([3000, 3000, 1000][rng.below(3)]),
        watch: [Watch::Leases, Watch::Leases, Watch::Ring, Watch::Chain][rng.below(4)],
    };
    let is_there = rng.chance(1.0 / 3.0);
    (rng, is_there.then_some(service))
}

impl Service {
    /// Returns the number of hosts of the service.
    pub fn hosts(self) -> u32 {
        let store = u32::from(self.processes > 1);
        let detectors = if self.watch == Watch::Chain { 2 } else { 0 };
        self.processes + store + detectors
    }
}

impl Scenario {
    /// Draws the faults of the service.
    pub(super) fn draw_service_troubles(&mut self, service: Service, rng: &mut Rng) {
        let mut at = Duration::from_millis(rng.below(2000) as u64);
        let troubles = Trouble::ALL.into_iter().filter(|_| rng.chance(0.5));
        let troubles: Vec<Trouble> = troubles.collect();
        if troubles.is_empty() {
            return;
        }
        for _ in 0..rng.below(10) {
            at += Duration::from_millis(rng.below(900) as u64);
            let trouble = troubles[rng.below(troubles.len())];
            let spans_ms = [10, 300, 1500, 6000];
            let end = at + Duration::from_millis(spans_ms[rng.below(spans_ms.len())]);
            let (begins, ends) = self.draw_trouble(trouble, service, rng);
            self.acts.push((at, begins));
            self.acts.extend(ends.map(|act| (end, act)));
        }
        self.acts.sort_by_key(|(at, _)| *at);
    }

    /// Draws the beginning of a fault, and its end if it has one.
    fn draw_trouble(
        &self,
        trouble: Trouble,
        service: Service,
        rng: &mut Rng,
    ) -> (Act, Option<Act>) {
        let process = rng.below(service.processes as usize) as u32;
        let host = HostIx(self.hosts + process);
        let fault = |begins, ends| (Act::Fault(begins), Some(Act::Fault(ends)));
        match trouble {
            Trouble::Killed => (Act::KillProcess(process), None),
            Trouble::Restarted => (Act::KillProcess(process), Some(Act::StartProcess(process))),
            Trouble::Paused => fault(Fault::Pause(host), Fault::Resume(host)),
            Trouble::CutOff => {
                let all = (0..self.hosts + service.hosts()).map(HostIx);
                let some = all.filter(|_| rng.chance(0.4)).collect();
                fault(Fault::Partition(some), Fault::Heal)
            }
            Trouble::StoreFails => {
                let failures = [CommitFailure::Full, CommitFailure::Failed, CommitFailure::Unknown];
                let failing = Some(failures[rng.below(failures.len())]);
                (Act::Store(failing, 0.0), Some(Act::Store(None, 0.0)))
            }
            Trouble::AnswersLost => {
                let share = [0.1, 0.5][rng.below(2)];
                (Act::Store(None, share), Some(Act::Store(None, 0.0)))
            }
            Trouble::Clock => {
                let by_ms = [-40, 40, 1000, 20_000][rng.below(4)];
                (Act::Fault(Fault::ClockStep(host, by_ms * 1_000_000)), None)
            }
            Trouble::Loss => {
                let loss = Loss::Uniform([0.1, 0.5, 1.0][rng.below(3)]);
                fault(Fault::Loss(host, loss), Fault::Loss(host, self.loss))
            }
        }
    }
}

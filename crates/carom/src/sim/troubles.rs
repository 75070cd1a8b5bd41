use std::collections::BTreeSet;
use std::time::Duration;

use carom_proto::loss::Loss;
use carom_proto::{Rng, Time};
use carom_sim::{Disturbance, Fault, HostIx};

use super::world::World;

/// The settings for [`World::run_troubled`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Troubles {
    /// Kinds of trouble, which are equally likely. Default: all.
    pub kinds: Vec<Trouble>,
    /// Mean time between the starts of two troubles. Default: 300 ms.
    pub mean_gap: Duration,
    /// Maximum duration of a trouble. Default: 5 s, longer than gossip takes to detect a failed
    /// node.
    pub longest: Duration,
}

/// A kind of temporary random fault. Several troubles can overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Trouble {
    /// A host with a [program](World::install) crashes, and restarts at the end.
    Crash,
    /// A host is paused.
    Pause,
    /// Some hosts are partitioned from the others. The end of one partition, or of
    /// [`Trouble::OneWay`], ends all of both kinds.
    Partition,
    /// Some hosts do not receive datagrams from some hosts.
    OneWay,
    /// Datagrams are delayed, duplicated or corrupted.
    Disturbance,
    /// A host drops 10, 50 or 100 % of the datagrams that reach it.
    Loss,
    /// The clock of a host's engines is stepped permanently, by up to one second in either
    /// direction.
    ClockStep,
    /// A host takes up to 5 ms longer to process each datagram.
    Slowness,
}

impl Trouble {
    /// All kinds of trouble.
    pub const ALL: [Self; 8] = [
        Self::Crash,
        Self::Pause,
        Self::Partition,
        Self::OneWay,
        Self::Disturbance,
        Self::Loss,
        Self::ClockStep,
        Self::Slowness,
    ];
}

impl Default for Troubles {
    fn default() -> Self {
        Self {
            kinds: Trouble::ALL.to_vec(),
            mean_gap: Duration::from_millis(300),
            longest: Duration::from_secs(5),
        }
    }
}

struct Under<'a> {
    world: &'a mut World,
    rng: Rng,
    ends: Vec<(Time, Relief)>,
    down: BTreeSet<HostIx>,
}

enum Relief {
    Restart(HostIx),
    Fault(Fault),
}

impl World {
    /// Advances the time by `span` with random faults that follow from the world's seed. All faults
    /// except clock steps have ended when this method returns.
    pub fn run_troubled(&mut self, span: Duration, troubles: &Troubles) {
        let end = self.now() + span;
        let rng = self.fork_rng();
        let mut under = Under { world: self, rng, ends: Vec::new(), down: BTreeSet::new() };
        let mut next = under.draw_gap(troubles);
        while next < end {
            under.run_to(next);
            under.begin_one(troubles);
            next = under.draw_gap(troubles);
        }
        under.run_to(end);
        under.end_all();
    }
}

impl Under<'_> {
    fn draw_gap(&mut self, troubles: &Troubles) -> Time {
        let gap = troubles.mean_gap.mul_f64(2.0 * self.rng.fraction());
        self.world.now() + gap.max(Duration::from_micros(1))
    }

    fn run_to(&mut self, end: Time) {
        while let Some(place) = self.first_end().filter(|place| self.ends[*place].0 <= end) {
            let (at, relief) = self.ends.remove(place);
            self.world.run_for(at.since(self.world.now()));
            self.relieve(relief);
        }
        self.world.run_for(end.since(self.world.now()));
    }

    fn first_end(&self) -> Option<usize> {
        (0..self.ends.len()).min_by_key(|place| self.ends[*place].0)
    }

    fn end_all(&mut self) {
        while let Some(place) = self.first_end() {
            let (_, relief) = self.ends.remove(place);
            self.relieve(relief);
        }
    }

    fn relieve(&mut self, relief: Relief) {
        match relief {
            Relief::Restart(ix) => {
                self.down.remove(&ix);
                let host = self.world.host(ix.0);
                self.world.restart(&host);
            }
            Relief::Fault(fault) => self.world.apply(&fault),
        }
    }

    fn begin_one(&mut self, troubles: &Troubles) {
        if troubles.kinds.is_empty() {
            return;
        }
        let kind = troubles.kinds[self.rng.below(troubles.kinds.len())];
        let lasting = troubles.longest.mul_f64(self.rng.fraction());
        let hosts = self.world.hosts().len();
        let host = HostIx(self.rng.below(hosts) as u32);
        let (fault, relief) = match kind {
            Trouble::Crash => return self.crash(host, lasting),
            Trouble::Pause => (Fault::Pause(host), Some(Fault::Resume(host))),
            Trouble::Partition => (Fault::Partition(self.some_hosts()), Some(Fault::Heal)),
            Trouble::OneWay => {
                (Fault::OneWay(self.some_hosts(), self.some_hosts()), Some(Fault::Heal))
            }
            Trouble::Disturbance => {
                let calm = Disturbance::default();
                (Fault::Disturb(self.draw_disturbance()), Some(Fault::Disturb(calm)))
            }
            Trouble::Loss => {
                let loss = Loss::Uniform([0.1, 0.5, 1.0][self.rng.below(3)]);
                let usual = self.world.usual_loss();
                (Fault::Loss(host, loss), Some(Fault::Loss(host, usual)))
            }
            Trouble::ClockStep => {
                let by_ns = self.rng.below(2 * MAX_STEP_NS) as i64 - MAX_STEP_NS as i64;
                (Fault::ClockStep(host, by_ns), None)
            }
            Trouble::Slowness => {
                let extra = Duration::from_micros([50, 500, 5_000][self.rng.below(3)]);
                (Fault::Slow(host, extra), Some(Fault::Slow(host, Duration::ZERO)))
            }
        };
        self.world.apply(&fault);
        if let Some(relief) = relief {
            self.ends.push((self.world.now() + lasting, Relief::Fault(relief)));
        }
    }

    fn crash(&mut self, ix: HostIx, lasting: Duration) {
        if self.world.has_program(ix) && self.down.insert(ix) {
            let host = self.world.host(ix.0);
            self.world.crash(&host);
            self.ends.push((self.world.now() + lasting, Relief::Restart(ix)));
        }
    }

    fn draw_disturbance(&mut self) -> Disturbance {
        Disturbance {
            reorder: [0.0, 0.1, 0.5][self.rng.below(3)],
            duplicate: [0.0, 0.05, 0.3][self.rng.below(3)],
            corrupt: [0.0, 0.01, 0.1][self.rng.below(3)],
            spread: Duration::from_micros([500, 20_000, 300_000][self.rng.below(3)]),
        }
    }

    fn some_hosts(&mut self) -> Vec<HostIx> {
        let hosts = self.world.hosts();
        hosts.iter().filter(|_| self.rng.chance(0.4)).map(super::Host::ix).collect()
    }
}

const MAX_STEP_NS: usize = 1_000_000_000;

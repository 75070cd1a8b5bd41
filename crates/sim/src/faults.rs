//! Faults other than loss.

use core::time::Duration;

use carom_proto::Rng;
use carom_proto::loss::Loss;

use crate::ids::HostIx;
use crate::topology::Place;

/// A fault that begins or ends. A crash and a restart are [`World::kill`](crate::World::kill) and
/// [`World::spawn`](crate::World::spawn).
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// Pause of the machine on the host, as by SIGSTOP. Datagrams wait in its receive buffer, and
    /// commands wait too. Has no effect without a machine.
    Pause(HostIx),
    /// End of a pause.
    Resume(HostIx),
    /// Partition between these hosts and all others, in both directions.
    Partition(Vec<HostIx>),
    /// One-way partition: datagrams from the first hosts to the second ones are dropped.
    OneWay(Vec<HostIx>, Vec<HostIx>),
    /// End of all partitions.
    Heal,
    /// Failure of the links between two places, in both directions.
    ///
    /// Datagrams that reach a dead link are dropped. This continues on trees that were
    /// [set](crate::Network::set_tree) until others are set. All other routes avoid dead links at
    /// once, as routing does when it has noticed. A link still carries the datagrams that it has
    /// accepted.
    CutLink(Place, Place),
    /// Repair of the links between two places.
    MendLink(Place, Place),
    /// Delay, duplication and damage of datagrams from now on.
    Disturb(Disturbance),
    /// Another loss model of the host from now on.
    Loss(HostIx, Loss),
    /// Another loss model of all links from now on. They lose independently. Before this, each has
    /// the loss of its [`Link`](crate::Link), independent of the losses of hosts.
    LinkLoss(Loss),
    /// Step of the host's clock by this many nanoseconds. The time that an engine sees never
    /// decreases: a clock that was set back stands still until the world has caught up.
    ClockStep(HostIx, i64),
    /// Additional processing time of the host for each datagram. Zero ends it.
    Slow(HostIx, Duration),
}

/// Probabilities of disturbances of a datagram between the last link and the host.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Disturbance {
    /// Probability of arriving up to `spread` later, which lets others overtake it.
    pub reorder: f64,
    /// Probability of arriving again, up to `spread` later.
    pub duplicate: f64,
    /// Probability of arriving with some bits flipped, or truncated.
    pub corrupt: f64,
    /// Maximum delay of `reorder` and `duplicate`.
    pub spread: Duration,
}

impl Disturbance {
    pub(crate) fn is_none(&self) -> bool {
        self.reorder <= 0.0 && self.duplicate <= 0.0 && self.corrupt <= 0.0
    }

    pub(crate) fn delay(&self, rng: &mut Rng) -> Duration {
        Duration::from_nanos((self.spread.as_nanos() as f64 * rng.fraction()) as u64)
    }
}

/// Damages `datagram`: flips one to three bits, or truncates it.
pub(crate) fn corrupt(datagram: &mut Vec<u8>, rng: &mut Rng) {
    if datagram.is_empty() {
        return;
    }
    if rng.chance(0.2) {
        datagram.truncate(rng.below(datagram.len()));
        return;
    }
    for _ in 0..1 + rng.below(3) {
        let bit = rng.below(datagram.len() * 8);
        datagram[bit / 8] ^= 1 << (bit % 8);
    }
}

#[derive(Debug, Default)]
pub(crate) struct Cuts(Vec<Cut>);

#[derive(Debug)]
struct Cut {
    from: Vec<HostIx>,
    /// `None`: all hosts that are not in `from`, and in both directions.
    to: Option<Vec<HostIx>>,
}

impl Cuts {
    pub(crate) fn partition(&mut self, mut hosts: Vec<HostIx>) {
        hosts.sort_unstable();
        self.0.push(Cut { from: hosts, to: None });
    }

    pub(crate) fn one_way(&mut self, mut from: Vec<HostIx>, mut to: Vec<HostIx>) {
        from.sort_unstable();
        to.sort_unstable();
        self.0.push(Cut { from, to: Some(to) });
    }

    pub(crate) fn heal(&mut self) {
        self.0.clear();
    }

    pub(crate) fn between(&self, from: HostIx, to: HostIx) -> bool {
        let has = |hosts: &[HostIx], host: &HostIx| hosts.binary_search(host).is_ok();
        self.0.iter().any(|cut| match &cut.to {
            None => has(&cut.from, &from) != has(&cut.from, &to),
            Some(deaf) => has(&cut.from, &from) && has(deaf, &to),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_cut_both_ways_and_one_way_cuts_one() {
        let [a, b, c] = [0, 1, 2].map(HostIx);
        let mut cuts = Cuts::default();
        cuts.partition(vec![b, a]);
        assert!(cuts.between(a, c) && cuts.between(c, b));
        assert!(!cuts.between(a, b) && !cuts.between(c, c));
        cuts.heal();
        cuts.one_way(vec![a], vec![c]);
        assert!(cuts.between(a, c) && !cuts.between(c, a) && !cuts.between(a, b));
    }
}

//! Faults other than random loss.

use core::time::Duration;

use carom_proto::Rng;
use carom_proto::loss::Loss;

use crate::ids::HostIx;
use crate::topology::Place;

/// A fault that begins or ends. For a crash or a restart, see [`World::kill`](crate::World::kill)
/// and [`World::spawn`](crate::World::spawn).
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// Pauses the machine on the host, as SIGSTOP does. Datagrams and commands wait until it
    /// resumes. Has no effect on a host without a machine.
    Pause(HostIx),
    /// Resumes the paused machine on the host.
    Resume(HostIx),
    /// Separates these hosts from all others, in both directions.
    Partition(Vec<HostIx>),
    /// Drops all datagrams from the first hosts to the second hosts.
    OneWay(Vec<HostIx>, Vec<HostIx>),
    /// Ends all partitions and one-way faults.
    Heal,
    /// Cuts the links between two places, in both directions.
    ///
    /// Datagrams that reach a dead link are dropped. Trees that were
    /// [set](crate::Network::set_tree) keep using the dead link until they are replaced. All other
    /// routes avoid dead links at once, as if the routing protocol had already converged. A link
    /// still delivers the datagrams that it has accepted.
    CutLink(Place, Place),
    /// Repairs the links between two places.
    MendLink(Place, Place),
    /// Sets the delay, duplication and corruption of datagrams.
    Disturb(Disturbance),
    /// Sets the loss model of the host.
    Loss(HostIx, Loss),
    /// Sets the loss model of every link. Links lose datagrams independently of each other and of
    /// the hosts. Until then, each link uses the loss model of its [`Link`](crate::Link).
    LinkLoss(Loss),
    /// Steps the host's clock by this many nanoseconds. An engine never sees time decrease: a clock
    /// that was set back stands still until the world has caught up.
    ClockStep(HostIx, i64),
    /// Sets the additional time that the host needs to process each datagram. Zero ends the fault.
    Slow(HostIx, Duration),
}

/// The probabilities that a datagram is disturbed between the last link and the host.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Disturbance {
    /// Probability that a datagram arrives up to `spread` late, so that later ones can overtake it.
    pub reorder: f64,
    /// Probability that a datagram arrives a second time, up to `spread` later.
    pub duplicate: f64,
    /// Probability that a datagram arrives truncated, or with some bits flipped.
    pub corrupt: f64,
    /// Maximum delay for `reorder` and `duplicate`.
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
    /// `None` means all hosts outside `from`, in both directions.
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

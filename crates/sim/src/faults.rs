//! What goes wrong besides loss.

use core::time::Duration;

use carom_proto::Rng;
use carom_proto::loss::Loss;

use crate::HostIx;
use crate::topology::Place;

/// Something that happens to the world at a moment. A crash and a restart are
/// [`World::kill`](crate::World::kill) and [`World::spawn`](crate::World::spawn).
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// The machine on the host stops as under SIGSTOP: what arrives waits in its receive buffer,
    /// and commands wait too. Nothing if there is no machine.
    Pause(HostIx),
    /// It goes on.
    Resume(HostIx),
    /// These hosts and all others no longer hear each other.
    Partition(Vec<HostIx>),
    /// What the first hosts send no longer reaches the second ones.
    OneWay(Vec<HostIx>, Vec<HostIx>),
    /// All partitions end.
    Heal,
    /// The links between two places die, in both directions. What comes to them is gone, and with
    /// it what would have gone on from there: on trees that were
    /// [set](crate::World::set_tree) until others are set. All other ways avoid them at once, as
    /// routing does once it has noticed. What a link has taken, it still carries to its end.
    CutLink(Place, Place),
    /// They carry again, and ways may lead over them.
    MendLink(Place, Place),
    /// Datagrams arrive late, twice or damaged from now on.
    Disturb(Disturbance),
    /// The host loses datagrams after another model from now on.
    Loss(HostIx, Loss),
    /// All links lose datagrams after another model from now on, each for itself. Without this,
    /// they lose what their [`Link`](crate::Link) says, whatever hosts do.
    LinkLoss(Loss),
    /// The host's clock is stepped by so many nanoseconds. Engines never see their time decrease:
    /// a clock that was set back stands still until the world has caught up.
    ClockStep(HostIx, i64),
    /// The host needs so much longer for each datagram from now on; zero ends it.
    Slow(HostIx, Duration),
}

/// What happens to datagrams between the last link and the host, each with its probability.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Disturbance {
    /// It arrives up to `spread` later, so that others overtake it.
    pub reorder: f64,
    /// It arrives again, up to `spread` later.
    pub duplicate: f64,
    /// It arrives with some bits flipped, or cut short.
    pub corrupt: f64,
    /// See `reorder` and `duplicate`.
    pub spread: Duration,
}

impl Disturbance {
    /// Whether nothing happens at all.
    pub(crate) fn is_none(&self) -> bool {
        self.reorder <= 0.0 && self.duplicate <= 0.0 && self.corrupt <= 0.0
    }

    pub(crate) fn delay(&self, rng: &mut Rng) -> Duration {
        Duration::from_nanos((self.spread.as_nanos() as f64 * rng.fraction()) as u64)
    }
}

/// Damages `datagram`: flips one to three bits, or cuts it short.
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

/// Who does not hear whom.
#[derive(Debug, Default)]
pub(crate) struct Cuts(Vec<Cut>);

#[derive(Debug)]
struct Cut {
    from: Vec<HostIx>,
    /// `None`: everybody who is not in `from`, and in both directions.
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

    /// Whether what `from` sends does not reach `to`.
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

//! Faults of hosts, drawn from a seed, and undone after a while.

use std::time::{Duration, Instant};

use carom_netns::{Cut, Lab};
use carom_proto::Rng;
use clap::ValueEnum;
use nix::sys::signal::Signal;

use crate::kind::Kind;
use crate::site::Site;

pub(crate) struct Draw(Rng);

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Fault {
    /// The process leaves and ends, and a new one starts under the same node id.
    Leave,
    /// The process is killed with `kill -9`, and a new one starts under the same node id.
    Kill,
    Stop,
    Partition,
    OneWay,
    Unplug,
    IfDown,
    Loss,
    /// All datagrams are lost for several short periods.
    Bursts,
}

pub(crate) struct Ongoing {
    pub(crate) until: Instant,
    fault: Fault,
    sites: Vec<usize>,
    cuts: Vec<Cut>,
    left: u32,
}

impl Fault {
    /// Returns the possible faults. Members leave only in a group with a single sender, whose role
    /// another member then takes.
    pub(crate) fn of(kind: Kind) -> Vec<Self> {
        let all = Self::value_variants().iter().copied();
        all.filter(|it| *it != Self::Leave || kind.has_one_sender()).collect()
    }

    pub(crate) fn begin(
        self,
        draw: &mut Draw,
        lab: &Lab,
        sites: &mut [Site<'_>],
    ) -> Option<Ongoing> {
        let free: Vec<usize> = (0..sites.len()).filter(|at| !sites[*at].has_fault).collect();
        let mut chosen: Vec<usize> = match self {
            Self::Partition => draw.some_of(&free, sites.len() / 2),
            Self::OneWay => draw.some_of(&free, 2),
            Self::Kill | Self::Leave => to_end(draw, sites, free),
            _ => draw.some_of(&free, 1),
        };
        chosen.sort_unstable();
        let at = *chosen.first()?;
        let mut length = Duration::from_millis(500 + draw.below(5_500));
        let mut left = 0;
        let cuts = match self {
            Self::Partition => partition(sites.len(), &chosen),
            Self::OneWay => vec![path(*chosen.get(1)?, at)],
            Self::Unplug => vec![Cut::Cable(at + 1)],
            _ => Vec::new(),
        };
        lab.cut_together(&cuts).expect("nft is available");
        match self {
            Self::Kill => sites[at].kill(),
            Self::Leave => sites[at].leave(),
            Self::Stop => sites[at].signal(Signal::SIGSTOP),
            Self::Partition | Self::OneWay | Self::Unplug => {}
            Self::IfDown => sites[at].host.set_up(false).expect("the host exists"),
            Self::Loss => sites[at].lose(5 + draw.below(26) as u32),
            Self::Bursts => {
                left = 7;
                length = Duration::from_millis(50 + draw.below(150));
                sites[at].lose(100);
            }
        }
        for at in &chosen {
            sites[*at].has_fault = true;
        }
        change_over(draw, sites);
        Some(Ongoing { until: Instant::now() + length, fault: self, sites: chosen, cuts, left })
    }
}

impl Ongoing {
    /// Undoes the fault, or returns it if it continues.
    pub(crate) fn end(
        mut self,
        draw: &mut Draw,
        lab: &Lab,
        sites: &mut [Site<'_>],
    ) -> Option<Self> {
        let at = self.sites[0];
        if self.left > 0 {
            // Bursts alternate with spans without loss.
            self.left -= 1;
            let percent = if self.left.is_multiple_of(2) { 0 } else { 100 };
            sites[at].lose(percent);
            self.until = Instant::now() + Duration::from_millis(50 + draw.below(150));
            return Some(self);
        }
        match self.fault {
            Fault::Kill | Fault::Leave => sites[at].start(),
            Fault::Stop => sites[at].signal(Signal::SIGCONT),
            Fault::Partition | Fault::OneWay | Fault::Unplug => {}
            Fault::IfDown => sites[at].host.set_up(true).expect("the host exists"),
            Fault::Loss | Fault::Bursts => sites[at].lose(0),
        }
        lab.heal_together(&self.cuts).expect("nft is available");
        for at in self.sites {
            sites[at].has_fault = false;
        }
        None
    }

    pub(crate) fn heal(self, draw: &mut Draw, lab: &Lab, sites: &mut [Site<'_>]) {
        let healed = Self { left: 0, ..self };
        assert!(healed.end(draw, lab, sites).is_none(), "the fault has ended");
    }
}

/// Chooses a site whose process ends: first the single sender, later the sender half of the time.
fn to_end(draw: &mut Draw, sites: &[Site<'_>], free: Vec<usize>) -> Vec<usize> {
    let is_first = sites.iter().all(Site::is_first_start);
    let sender = free.iter().copied().find(|at| sites[*at].is_sender);
    let sender = sender.filter(|at| sites[*at].kind.has_one_sender());
    match sender.filter(|_| is_first || draw.below(2) == 0) {
        Some(sender) => vec![sender],
        None => draw.some_of(&free, 1),
    }
}

fn change_over(draw: &mut Draw, sites: &mut [Site<'_>]) {
    let gone = sites.iter().position(|it| it.is_sender && !it.is_running());
    let Some(gone) = gone.filter(|at| sites[*at].kind.has_one_sender()) else { return };
    let free: Vec<usize> = (0..sites.len()).filter(|at| !sites[*at].has_fault).collect();
    let next = draw.one_of(&free);
    sites[gone].is_sender = false;
    sites[next].make_sender();
}

/// Returns the cuts, in both directions, between the chosen sites and the others.
fn partition(sites: usize, chosen: &[usize]) -> Vec<Cut> {
    let pairs = (0..sites).flat_map(|from| (0..sites).map(move |to| (from, to)));
    let cut = pairs.filter(|(from, to)| chosen.contains(from) != chosen.contains(to));
    cut.map(|(from, to)| path(from, to)).collect()
}

/// Returns the path between two sites. Hosts are numbered from 1.
fn path(from: usize, to: usize) -> Cut {
    Cut::Path { from: from + 1, to: to + 1 }
}

impl Draw {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Rng::new(seed))
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound as usize) as u64
    }

    pub(crate) fn one_of<T: Copy>(&mut self, among: &[T]) -> T {
        among[self.below(among.len() as u64) as usize]
    }

    fn some_of(&mut self, among: &[usize], count: usize) -> Vec<usize> {
        let mut left = among.to_vec();
        if left.len() < count {
            return Vec::new();
        }
        (0..count).map(|_| left.swap_remove(self.below(left.len() as u64) as usize)).collect()
    }
}

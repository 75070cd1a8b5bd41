//! Faults of hosts, drawn from a seed, and undone after a while.

use std::time::{Duration, Instant};

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
    left: u32,
}

impl Fault {
    /// Returns the possible faults. Members leave only in a group with a single sender, whose role
    /// another member then takes.
    pub(crate) fn of(kind: Kind) -> Vec<Self> {
        let all = Self::value_variants().iter().copied();
        all.filter(|it| *it != Self::Leave || kind.has_one_sender()).collect()
    }

    pub(crate) fn begin(self, draw: &mut Draw, sites: &mut [Site<'_>]) -> Option<Ongoing> {
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
        match self {
            Self::Kill => sites[at].kill(),
            Self::Leave => sites[at].leave(),
            Self::Stop => sites[at].signal(Signal::SIGSTOP),
            Self::Partition => partition(sites, &chosen),
            Self::OneWay => {
                let deaf_to = sites[*chosen.get(1)?].address();
                sites[at].filter(|it| {
                    it.deaf_to.insert(deaf_to);
                });
            }
            Self::Unplug => sites[at].host.unplug(),
            Self::IfDown => sites[at].host.interface_down(),
            Self::Loss => {
                let percent = 5 + draw.below(26) as u32;
                sites[at].filter(|it| it.loss_percent = percent);
            }
            Self::Bursts => {
                left = 7;
                length = Duration::from_millis(50 + draw.below(150));
                sites[at].filter(|it| it.loss_percent = 100);
            }
        }
        for at in &chosen {
            sites[*at].has_fault = true;
        }
        change_over(draw, sites);
        Some(Ongoing { until: Instant::now() + length, fault: self, sites: chosen, left })
    }
}

impl Ongoing {
    /// Undoes the fault, or returns it if it continues.
    pub(crate) fn end(mut self, draw: &mut Draw, sites: &mut [Site<'_>]) -> Option<Self> {
        let at = self.sites[0];
        if self.left > 0 {
            // Bursts alternate with spans without loss.
            self.left -= 1;
            let percent = if self.left.is_multiple_of(2) { 0 } else { 100 };
            sites[at].filter(|it| it.loss_percent = percent);
            self.until = Instant::now() + Duration::from_millis(50 + draw.below(150));
            return Some(self);
        }
        match self.fault {
            Fault::Kill | Fault::Leave => sites[at].start(),
            Fault::Stop => sites[at].signal(Signal::SIGCONT),
            Fault::Partition => {
                for site in sites.iter_mut() {
                    site.filter(|it| it.deaf_to.clear());
                }
            }
            Fault::OneWay => sites[at].filter(|it| it.deaf_to.clear()),
            Fault::Unplug => sites[at].host.plug(),
            Fault::IfDown => sites[at].host.interface_up(),
            Fault::Loss | Fault::Bursts => sites[at].filter(|it| it.loss_percent = 0),
        }
        for at in self.sites {
            sites[at].has_fault = false;
        }
        None
    }

    pub(crate) fn heal(self, draw: &mut Draw, sites: &mut [Site<'_>]) {
        let healed = Self { left: 0, ..self };
        assert!(healed.end(draw, sites).is_none(), "the fault has ended");
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

fn partition(sites: &mut [Site<'_>], chosen: &[usize]) {
    let addresses: Vec<_> = sites.iter().map(Site::address).collect();
    for (at, site) in sites.iter_mut().enumerate() {
        let others = (0..addresses.len()).filter(|it| chosen.contains(it) != chosen.contains(&at));
        let others: Vec<_> = others.map(|it| addresses[it]).collect();
        site.filter(|it| it.deaf_to.extend(others));
    }
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

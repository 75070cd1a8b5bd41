//! Faults of hosts, drawn from a seed, and undone after a while.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::kind::Kind;
use crate::site::Site;

/// Random number generator (splitmix64).
pub(crate) struct Draw(u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// `kill -9`, then a new process under the same node id.
    Kill,
    /// The process leaves and ends, then a new one starts under the same node id.
    Leave,
    Stop,
    Partition,
    OneWay,
    Unplugged,
    InterfaceDown,
    Loss,
    /// All datagrams are lost for a moment, several times.
    Bursts,
}

pub(crate) struct Ongoing {
    pub(crate) until: Instant,
    fault: Fault,
    sites: Vec<usize>,
    left: u32,
}

impl Fault {
    const ALL: [(Self, &str); 9] = [
        (Self::Leave, "leave"),
        (Self::Kill, "kill"),
        (Self::Stop, "stop"),
        (Self::Partition, "partition"),
        (Self::OneWay, "one-way"),
        (Self::Unplugged, "unplug"),
        (Self::InterfaceDown, "if-down"),
        (Self::Loss, "loss"),
        (Self::Bursts, "bursts"),
    ];

    /// Returns the default faults for groups of this kind. Members leave only in a group with a
    /// single sender; another member then takes over.
    pub(crate) fn of(kind: Kind) -> Vec<Self> {
        let all = Self::ALL.into_iter().map(|(fault, _)| fault);
        all.filter(|it| *it != Self::Leave || kind.has_one_sender()).collect()
    }

    pub(crate) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, own)| *own == name).map(|(fault, _)| fault)
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
            Self::Unplugged => sites[at].host.unplug(),
            Self::InterfaceDown => sites[at].host.interface_down(),
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
    /// Undoes the fault. Returns it if it continues.
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
            Fault::Unplugged => sites[at].host.plug(),
            Fault::InterfaceDown => sites[at].host.interface_up(),
            Fault::Loss | Fault::Bursts => sites[at].filter(|it| it.loss_percent = 0),
        }
        for at in self.sites {
            sites[at].has_fault = false;
        }
        None
    }

    pub(crate) fn heal(self, draw: &mut Draw, sites: &mut [Site<'_>]) {
        let healed = Self { left: 0, ..self };
        assert!(healed.end(draw, sites).is_none(), "nothing is left of it");
    }
}

/// Chooses a site whose process ends: the single sender at first, and later half of the time.
fn to_end(draw: &mut Draw, sites: &[Site<'_>], free: Vec<usize>) -> Vec<usize> {
    let is_first = sites.iter().all(Site::is_first_start);
    let sender = free.iter().copied().find(|at| sites[*at].is_sender);
    let sender = sender.filter(|at| sites[*at].kind.has_one_sender());
    match sender.filter(|_| is_first || draw.below(2) == 0) {
        Some(sender) => vec![sender],
        None => draw.some_of(&free, 1),
    }
}

/// Makes another member the sender if the process of the single sender has ended.
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
        Self(seed)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % bound
    }

    pub(crate) fn one_of<T: Copy>(&mut self, among: &[T]) -> T {
        among[self.below(among.len() as u64) as usize]
    }

    /// Draws `count` elements, or none if there are fewer.
    fn some_of(&mut self, among: &[usize], count: usize) -> Vec<usize> {
        let mut left = among.to_vec();
        if left.len() < count {
            return Vec::new();
        }
        (0..count).map(|_| left.swap_remove(self.below(left.len() as u64) as usize)).collect()
    }
}

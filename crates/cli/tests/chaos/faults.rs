//! Faults: what can go wrong with a host, drawn from a seed, and undone after a while.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::site::Site;

/// A source of the same numbers for the same seed (splitmix64).
pub(crate) struct Draw(u64);

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// `kill -9`, and a new process under the same node id.
    Kill,
    /// SIGSTOP and SIGCONT.
    Stop,
    /// The hosts in two halves, without a word between them.
    Partition,
    /// One host does not hear another one.
    OneWay,
    /// The switch's port is down.
    Unplugged,
    /// The host's own interface is down.
    InterfaceDown,
    /// Datagrams are lost at random.
    Loss,
    /// All datagrams are lost for a moment, several times.
    Bursts,
}

/// Something to undo.
pub(crate) struct Ongoing {
    pub(crate) until: Instant,
    fault: Fault,
    sites: Vec<usize>,
    left: u32,
}

impl Fault {
    pub(crate) const ALL: [Self; 8] = [
        Self::Kill,
        Self::Stop,
        Self::Partition,
        Self::OneWay,
        Self::Unplugged,
        Self::InterfaceDown,
        Self::Loss,
        Self::Bursts,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Stop => "stop",
            Self::Partition => "partition",
            Self::OneWay => "one-way",
            Self::Unplugged => "unplug",
            Self::InterfaceDown => "if-down",
            Self::Loss => "loss",
            Self::Bursts => "bursts",
        }
    }

    pub(crate) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|fault| fault.name() == name)
    }

    /// Begins the fault at a site that has none, if there are enough of them.
    pub(crate) fn begin(
        self,
        draw: &mut Draw,
        sites: &mut [Site<'_>],
        spared: usize,
    ) -> Option<Ongoing> {
        let free: Vec<usize> = (0..sites.len()).filter(|at| !sites[*at].has_fault).collect();
        let mut chosen: Vec<usize> = match self {
            Self::Partition => draw.some_of(&free, sites.len() / 2),
            Self::OneWay => draw.some_of(&free, 2),
            // A process that the kind of group depends on is not killed.
            Self::Kill => {
                let others: Vec<usize> = free.into_iter().filter(|at| *at >= spared).collect();
                draw.some_of(&others, 1)
            }
            _ => draw.some_of(&free, 1),
        };
        chosen.sort_unstable();
        let at = *chosen.first()?;
        let mut length = Duration::from_millis(500 + draw.below(5_500));
        let mut left = 0;
        match self {
            Self::Kill => sites[at].kill(),
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
        Some(Ongoing { until: Instant::now() + length, fault: self, sites: chosen, left })
    }
}

impl Ongoing {
    /// Undoes the fault; returns it again if it is to be continued.
    pub(crate) fn end(mut self, draw: &mut Draw, sites: &mut [Site<'_>]) -> Option<Self> {
        let at = self.sites[0];
        if self.left > 0 {
            // Every other span is without loss.
            self.left -= 1;
            let percent = if self.left.is_multiple_of(2) { 0 } else { 100 };
            sites[at].filter(|it| it.loss_percent = percent);
            self.until = Instant::now() + Duration::from_millis(50 + draw.below(150));
            return Some(self);
        }
        match self.fault {
            Fault::Kill => sites[at].start(),
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

    /// Undoes the fault for good.
    pub(crate) fn heal(self, draw: &mut Draw, sites: &mut [Site<'_>]) {
        let healed = Self { left: 0, ..self };
        assert!(healed.end(draw, sites).is_none(), "nothing is left of it");
    }
}

/// Cuts the chosen sites off from all others, in both directions.
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

    /// `count` of them, or none if there are fewer.
    fn some_of(&mut self, among: &[usize], count: usize) -> Vec<usize> {
        let mut left = among.to_vec();
        if left.len() < count {
            return Vec::new();
        }
        (0..count).map(|_| left.swap_remove(self.below(left.len() as u64) as usize)).collect()
    }
}

//! What the hosts of an experiment are connected by.

use carom_sim::{Jitter, Link, Topology};
use serde::Deserialize;

use crate::plan::Span;

/// Hosts and the network between them.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, tag = "kind", rename_all = "snake_case")]
pub(crate) enum Wiring {
    /// Racks of hosts, each with a switch, under one switch more: the papers' cluster. A star of
    /// switches around a gateway is the same.
    Racks {
        /// How many.
        racks: u32,
        /// Hosts in each.
        hosts_per_rack: u32,
        /// One way between a host and its switch.
        host_link: Span,
        /// One way between a rack's switch and the one above.
        uplink: Span,
    },
    /// Every host at the same distance from every other.
    Lan {
        /// How many.
        hosts: u32,
        /// One way.
        delay: Span,
        /// Mean of an exponentially distributed delay on top of it.
        exponential: Span,
    },
}

impl Wiring {
    /// Racks in which a ping takes about 100 us (Slingshot 4).
    #[cfg(test)]
    pub(crate) fn rack(racks: u32, hosts_per_rack: u32) -> Self {
        let [host_link, uplink] = [20, 5].map(std::time::Duration::from_micros);
        Self::Racks { racks, hosts_per_rack, host_link: Span(host_link), uplink: Span(uplink) }
    }

    /// How many hosts there are.
    pub(crate) fn hosts(&self) -> u32 {
        match self {
            Self::Racks { racks, hosts_per_rack, .. } => racks * hosts_per_rack,
            Self::Lan { hosts, .. } => *hosts,
        }
    }

    /// The same with more of it, in further racks, so that there are at least so many hosts.
    pub(crate) fn with_room_for(&self, hosts: u32) -> Self {
        let mut larger = self.clone();
        match &mut larger {
            Self::Racks { racks, hosts_per_rack, .. } => {
                *racks = hosts.div_ceil(*hosts_per_rack).max(*racks);
            }
            Self::Lan { hosts: present, .. } => *present = hosts.max(*present),
        }
        larger
    }

    /// The network for the simulator.
    pub(crate) fn topology(&self) -> Topology {
        match self {
            Self::Racks { racks, hosts_per_rack, host_link, uplink } => {
                let [host_link, uplink] = [host_link, uplink].map(|span| Link::of_delay(span.0));
                Topology::rack(*racks, *hosts_per_rack, host_link, uplink)
            }
            Self::Lan { hosts, delay, exponential } => {
                let jitter = Jitter::Exponential(exponential.0);
                Topology::lan(*hosts, Link::of_delay(delay.0).with_jitter(jitter))
            }
        }
    }

    /// What is wrong with it, if anything is.
    pub(crate) fn check(&self) -> Result<(), String> {
        let hosts = self.hosts();
        if (2..=MAX_HOSTS).contains(&hosts) {
            return Ok(());
        }
        Err(format!("a network of {hosts} hosts, where 2 to {MAX_HOSTS} make sense"))
    }
}

/// More than these would not end.
const MAX_HOSTS: u32 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_the_hosts_that_it_says() {
        assert_eq!(Wiring::rack(4, 16).hosts(), 64);
        assert_eq!(Wiring::rack(4, 16).topology().hosts(), 64);
        assert!(Wiring::rack(1, 1).check().is_err());
    }

    #[test]
    fn a_network_grows_by_whole_racks_and_never_shrinks() {
        let rooms = [1, 64, 65].map(|hosts| Wiring::rack(4, 16).with_room_for(hosts).hosts());
        assert_eq!(rooms, [64, 64, 80]);
    }
}

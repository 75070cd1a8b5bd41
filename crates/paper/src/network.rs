use carom_sim::{Jitter, Link, Topology};
use serde::Deserialize;

use crate::plan::Span;

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, tag = "kind", rename_all = "snake_case")]
pub(crate) enum Wiring {
    /// The papers' cluster, or a star: racks with a switch each, and a switch above them.
    Racks { racks: u32, hosts_per_rack: u32, host_link: Span, uplink: Span },
    Lan {
        hosts: u32,
        /// Constant part of the one-way delay.
        delay: Span,
        /// Mean of the exponentially distributed part of the one-way delay.
        exponential: Span,
    },
}

impl Wiring {
    /// Returns racks in which a ping takes about 100 µs (Slingshot 4).
    #[cfg(test)]
    pub(crate) fn rack(racks: u32, hosts_per_rack: u32) -> Self {
        let [host_link, uplink] = [20, 5].map(std::time::Duration::from_micros);
        Self::Racks { racks, hosts_per_rack, host_link: Span(host_link), uplink: Span(uplink) }
    }

    pub(crate) fn hosts(&self) -> u32 {
        match self {
            Self::Racks { racks, hosts_per_rack, .. } => racks * hosts_per_rack,
            Self::Lan { hosts, .. } => *hosts,
        }
    }

    /// Returns `true` if links differ only in small constant delays.
    pub(crate) fn has_constant_delays(&self) -> bool {
        match self {
            Self::Racks { .. } => true,
            Self::Lan { exponential, .. } => exponential.0.is_zero(),
        }
    }

    /// Returns a network of at least `hosts` hosts. Racks, or hosts of a LAN, are added as needed.
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

    pub(crate) fn check(&self) -> Result<(), String> {
        let hosts = self.hosts();
        if (2..=MAX_HOSTS).contains(&hosts) {
            return Ok(());
        }
        Err(format!("the network has {hosts} hosts: expected 2 to {MAX_HOSTS}"))
    }
}

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

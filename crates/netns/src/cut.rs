use crate::host::Host;
use crate::rack::Rack;

/// A connection that [`Lab::cut`](crate::Lab::cut) interrupts. Hosts and racks are numbered from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The cable of a host. Its interface loses the carrier.
    Cable(usize),
    /// The cable from a rack to the core.
    Uplink(usize),
    /// Everything that a host sends, silently.
    Sending(usize),
    /// Everything that a host would receive, silently.
    Receiving(usize),
    /// The IPv4 multicasts that a host would receive, silently. Unicast and broadcasts pass.
    Multicast(usize),
    /// Everything from one host to another, silently.
    Path {
        /// The host that sends.
        from: usize,
        /// The host that would receive.
        to: usize,
    },
}

impl Cut {
    /// Returns the element of a set of the switch's table that stands for a silent cut.
    pub(crate) fn element(&self, hosts: &[Host]) -> Option<String> {
        let at = |number: usize| &hosts[number - 1];
        match *self {
            Self::Cable(_) | Self::Uplink(_) => None,
            Self::Sending(host) => Some(format!("mute {{ {} }}", at(host).port())),
            Self::Receiving(host) => Some(format!("deaf {{ {} }}", at(host).port())),
            Self::Multicast(host) => Some(format!("unicast_only {{ {} }}", at(host).port())),
            Self::Path { from, to } => {
                Some(format!("paths {{ {} . {} }}", at(to).port(), at(from).mac()))
            }
        }
    }

    /// Returns the interface of the switch that a cut takes down.
    pub(crate) fn interface<'a>(&self, hosts: &'a [Host], racks: &'a [Rack]) -> Option<&'a str> {
        match *self {
            Self::Cable(host) => Some(hosts[host - 1].port()),
            Self::Uplink(rack) => Some(racks[rack - 1].uplink()),
            Self::Sending(_) | Self::Receiving(_) | Self::Multicast(_) | Self::Path { .. } => None,
        }
    }
}

/// The table of the switch that drops what silent cuts interrupt.
pub(crate) const TABLE: &str = "
add table bridge carom_cuts
add set bridge carom_cuts mute { type ifname; }
add set bridge carom_cuts deaf { type ifname; }
add set bridge carom_cuts unicast_only { type ifname; }
add set bridge carom_cuts paths { type ifname . ether_addr; }
add chain bridge carom_cuts in { type filter hook prerouting priority -300; }
add chain bridge carom_cuts out { type filter hook postrouting priority -300; }
flush chain bridge carom_cuts in
flush chain bridge carom_cuts out
add rule bridge carom_cuts in iifname @mute drop
add rule bridge carom_cuts out oifname @deaf drop
add rule bridge carom_cuts out oifname @unicast_only ip daddr 224.0.0.0/4 drop
add rule bridge carom_cuts out oifname . ether saddr @paths drop
";

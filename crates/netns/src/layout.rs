use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// Size and links of a lab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// Number of racks, 1 to 255. Each has a bridge, and a core bridge connects them if there are
    /// several.
    pub racks: usize,
    /// Number of hosts per rack, 1 to 249.
    pub hosts_per_rack: usize,
    /// Largest IP packet on all links, 576 to 65535 bytes. Networks have 1500 or 9000.
    pub mtu: u32,
    /// Sends trains of datagrams as one packet, as a network card with segmentation offload does.
    /// Turn it off where datagrams get lost: otherwise a whole train is lost at once.
    pub gso: bool,
}

impl Default for Layout {
    /// One rack of two hosts with an MTU of 1500 bytes, and without segmentation offload.
    fn default() -> Self {
        Self { racks: 1, hosts_per_rack: 2, mtu: 1500, gso: false }
    }
}

impl Layout {
    /// Returns the number of hosts.
    pub fn hosts(&self) -> usize {
        self.racks * self.hosts_per_rack
    }

    /// Checks all fields.
    pub fn validate(&self) -> Result<(), Error> {
        let mtu = self.mtu as usize;
        let checks = [
            ("racks", self.racks, 1, MOST_RACKS),
            ("hosts per rack", self.hosts_per_rack, 1, MOST_HOSTS),
            ("bytes of MTU", mtu, 576, 65_535),
        ];
        let wrong = checks.iter().find(|(_, value, least, most)| value < least || value > most);
        wrong.map_or(Ok(()), |(what, value, least, most)| {
            Err(Error::new(
                format!("{value} {what} are not possible"),
                format!("use {least} to {most}"),
            ))
        })
    }

    /// Returns the rack of a host. Both are numbered from 1.
    pub(crate) fn rack_of(&self, host: usize) -> usize {
        (host - 1) / self.hosts_per_rack + 1
    }

    /// Returns the address of a host: the rack is its third number, the position the fourth.
    pub(crate) fn address(&self, host: usize) -> Ipv4Addr {
        let [rack, place] = self.place(host);
        Ipv4Addr::new(10, 77, rack, place)
    }

    /// Returns the Ethernet address of a host.
    pub(crate) fn mac(&self, host: usize) -> String {
        let [rack, place] = self.place(host);
        format!("02:4d:00:00:{rack:02x}:{place:02x}")
    }

    fn place(&self, host: usize) -> [u8; 2] {
        let place = (host - 1) % self.hosts_per_rack + 1;
        [self.rack_of(host), place].map(|it| u8::try_from(it).expect("the layout is validated"))
    }
}

const MOST_RACKS: usize = 255;
/// Addresses above it are free for tests that move a host or name a missing one.
const MOST_HOSTS: usize = 249;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_name_the_rack_and_the_position() {
        let layout = Layout { racks: 3, hosts_per_rack: 4, ..Layout::default() };
        assert_eq!(layout.hosts(), 12);
        assert_eq!([1, 4, 5, 12].map(|host| layout.rack_of(host)), [1, 1, 2, 3]);
        assert_eq!(layout.address(5), Ipv4Addr::new(10, 77, 2, 1));
        assert_eq!(layout.mac(12), "02:4d:00:00:03:04");
    }

    #[test]
    fn values_out_of_range_are_refused_with_the_range() {
        let wrong = |layout: Layout| layout.validate().expect_err("out of range").to_string();
        let none = wrong(Layout { racks: 0, ..Layout::default() });
        assert_eq!(none, "0 racks are not possible\nfix: use 1 to 255");
        let narrow = wrong(Layout { mtu: 100, ..Layout::default() });
        assert_eq!(narrow, "100 bytes of MTU are not possible\nfix: use 576 to 65535");
        assert_eq!(Layout::default().validate(), Ok(()));
    }
}

use std::fs;

use carom_netns::Host;

use crate::bench::failure::Failure;

/// Counters of the kernel on a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counters {
    /// Packets that `eth0` received.
    pub(super) packets: u64,
    /// UDP datagrams that were discarded at a socket, because its receive buffer was full or the
    /// datagram was damaged.
    pub(super) udp_errors: u64,
}

impl Counters {
    pub(super) fn read(host: &Host) -> Result<Self, Failure> {
        // A thread that enters a namespace has its counters only under its own path.
        let read = |path: &str| -> Result<String, Failure> {
            let text = host.enter(|| fs::read_to_string(path))?;
            Ok(text.map_err(|error| format!("cannot read {path}: {error}"))?)
        };
        let packets = received_packets(&read(DEV)?).ok_or_else(|| format!("{DEV} has no eth0"))?;
        let udp_errors =
            udp_errors(&read(SNMP)?).ok_or_else(|| format!("{SNMP} has no InErrors of UDP"))?;
        Ok(Self { packets, udp_errors })
    }

    /// Returns the difference to an earlier reading.
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            packets: self.packets.saturating_sub(before.packets),
            udp_errors: self.udp_errors.saturating_sub(before.udp_errors),
        }
    }
}

/// Returns the packets received by `eth0` from the content of `/proc/net/dev`.
fn received_packets(text: &str) -> Option<u64> {
    let counters = text.lines().find_map(|line| line.trim().strip_prefix("eth0:"))?;
    counters.split_whitespace().nth(1)?.parse().ok()
}

/// Returns `InErrors` of UDP, of which `RcvbufErrors` is a part, from the content of
/// `/proc/net/snmp`.
fn udp_errors(text: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let mut fields = names.split_whitespace().zip(values.split_whitespace());
    fields.find(|(name, _)| *name == "InErrors")?.1.parse().ok()
}

const DEV: &str = "/proc/thread-self/net/dev";
const SNMP: &str = "/proc/thread-self/net/snmp";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_of_the_interface_are_the_second_counter() {
        let text = "Inter-|   Receive\n face |bytes packets\n    lo: 1 2 3\n  eth0: 900 42 0 0\n";
        assert_eq!(received_packets(text), Some(42));
        assert_eq!(received_packets("    lo: 1 2 3\n"), None);
    }

    #[test]
    fn udp_errors_are_found_by_their_name() {
        let text = "Tcp: InErrs\nTcp: 9\nUdp: InDatagrams NoPorts InErrors OutDatagrams \
                    RcvbufErrors\nUdp: 7 1 5 8 4\nUdpLite: InErrors\nUdpLite: 6\n";
        assert_eq!(udp_errors(text), Some(5));
        assert_eq!(udp_errors("Udp: InDatagrams\nUdp: 7\n"), None);
    }
}

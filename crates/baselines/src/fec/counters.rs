//! What the engine counts, beside what every receiver counts.

/// Counters of an engine of sender-based FEC since it was made. Packets unless the name says
/// otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages of this node that were multicast.
    pub data_sent: u64,
    /// Parity packets sent.
    pub parity_sent: u64,
    /// Sets that were sent before they were full.
    pub sets_flushed: u64,
    /// Heartbeats sent.
    pub heartbeats_sent: u64,
    /// Parity packets received.
    pub parity_received: u64,
    /// Parity packets of sets of which nothing is missing.
    pub parity_redundant: u64,
    /// Packets solved for that were none: the parity contradicts what is known.
    pub parity_contradictory: u64,
    /// Sets dropped for want of room.
    pub sets_dropped: u64,
    /// Datagrams of groups that this node is not in, or with its own id.
    pub foreign: u64,
    /// Datagrams that could not be decoded.
    pub malformed: u64,
}

impl Counters {
    /// All counters by name.
    pub fn named(&self) -> [(&'static str, u64); 10] {
        [
            ("data_sent", self.data_sent),
            ("parity_sent", self.parity_sent),
            ("sets_flushed", self.sets_flushed),
            ("heartbeats_sent", self.heartbeats_sent),
            ("parity_received", self.parity_received),
            ("parity_redundant", self.parity_redundant),
            ("parity_contradictory", self.parity_contradictory),
            ("sets_dropped", self.sets_dropped),
            ("foreign", self.foreign),
            ("malformed", self.malformed),
        ]
    }
}

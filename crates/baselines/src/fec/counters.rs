//! The engine's counters, in addition to those of every receiver.

/// Counters of a sender-based FEC engine since it was created. The unit is packets unless the name
/// says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages of this node that were multicast.
    pub data_sent: u64,
    /// Parity packets sent.
    pub parity_sent: u64,
    /// Sets whose parity was sent before they were full.
    pub sets_flushed: u64,
    /// Heartbeats sent.
    pub heartbeats_sent: u64,
    /// Parity packets received.
    pub parity_received: u64,
    /// Parity packets of sets without missing packets.
    pub parity_redundant: u64,
    /// Decoded symbols that are invalid, which means that the parity contradicts the known symbols.
    pub parity_contradictory: u64,
    /// Sets dropped because the bound was reached.
    pub sets_dropped: u64,
    /// Datagrams of groups that this node has not joined, or with this node's own id.
    pub foreign: u64,
    /// Datagrams that could not be decoded.
    pub malformed: u64,
}

impl Counters {
    /// Returns all counters by name.
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

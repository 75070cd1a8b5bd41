//! The engine's counters, in addition to those of every head of a domain.

/// Counters of an LBRM engine since it was created. The unit is packets unless the name says
/// otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages of this node that were multicast.
    pub data_sent: u64,
    /// NAKs sent.
    pub nacks_sent: u64,
    /// NAKs received.
    pub nacks_received: u64,
    /// Missing packets that were due for a NAK while no parent was in the view.
    pub nobody_to_ask: u64,
    /// Heartbeats sent.
    pub heartbeats_sent: u64,
    /// Datagrams of groups that this node has not joined, or with this node's own id.
    pub foreign: u64,
    /// Datagrams that could not be decoded.
    pub malformed: u64,
}

impl Counters {
    /// Returns all counters by name.
    pub fn named(&self) -> [(&'static str, u64); 7] {
        [
            ("data_sent", self.data_sent),
            ("nacks_sent", self.nacks_sent),
            ("nacks_received", self.nacks_received),
            ("nobody_to_ask", self.nobody_to_ask),
            ("heartbeats_sent", self.heartbeats_sent),
            ("foreign", self.foreign),
            ("malformed", self.malformed),
        ]
    }
}

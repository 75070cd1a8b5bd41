//! What the engine counts, beside what every head of a domain counts.

/// Counters of an LBRM engine since it was made. Packets unless the name says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages of this node that were multicast.
    pub data_sent: u64,
    /// Requests sent.
    pub nacks_sent: u64,
    /// Requests received.
    pub nacks_received: u64,
    /// Missing packets that were to be asked for while nobody was there to be asked.
    pub nobody_to_ask: u64,
    /// Heartbeats sent.
    pub heartbeats_sent: u64,
    /// Datagrams of groups that this node is not in, or with its own id.
    pub foreign: u64,
    /// Datagrams that could not be decoded.
    pub malformed: u64,
}

impl Counters {
    /// All counters by name.
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

//! What the engine counts, beside what every receiver counts.

/// Counters of an ACK/timeout engine since it was made. Packets unless the name says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages of this node that were multicast.
    pub data_sent: u64,
    /// Retransmissions sent, one for each member that had not acknowledged.
    pub retransmissions_sent: u64,
    /// Notices sent instead of a retransmission, because the message's deadline had passed.
    pub expired_sent: u64,
    /// Acknowledgements sent.
    pub acks_sent: u64,
    /// Acknowledgements received.
    pub acks_received: u64,
    /// Acknowledgements of what was acknowledged already.
    pub acks_duplicate: u64,
    /// Messages refused because the window was full.
    pub held_back: u64,
    /// Members that were no longer waited for.
    pub slow: u64,
    /// Messages that are no longer sent again to a member because it is slow.
    pub abandoned_by_sender: u64,
    /// Horizons sent.
    pub horizons_sent: u64,
    /// Datagrams of groups that this node is not in, or with its own id.
    pub foreign: u64,
    /// Datagrams that could not be decoded.
    pub malformed: u64,
}

impl Counters {
    /// All counters by name.
    pub fn named(&self) -> [(&'static str, u64); 12] {
        [
            ("data_sent", self.data_sent),
            ("retransmissions_sent", self.retransmissions_sent),
            ("expired_sent", self.expired_sent),
            ("acks_sent", self.acks_sent),
            ("acks_received", self.acks_received),
            ("acks_duplicate", self.acks_duplicate),
            ("held_back", self.held_back),
            ("slow", self.slow),
            ("abandoned_by_sender", self.abandoned_by_sender),
            ("horizons_sent", self.horizons_sent),
            ("foreign", self.foreign),
            ("malformed", self.malformed),
        ]
    }
}

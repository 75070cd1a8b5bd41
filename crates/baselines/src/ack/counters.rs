//! The engine's counters, in addition to those of every receiver.

/// Counters of an ACK/timeout engine since it was created. The unit is packets unless the name says
/// otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages of this node that were multicast.
    pub data_sent: u64,
    /// Retransmissions sent, one for each member without an acknowledgment.
    pub retransmissions_sent: u64,
    /// Notices sent in place of a retransmission because the message's deadline had passed.
    pub expired_sent: u64,
    /// Acknowledgments sent.
    pub acks_sent: u64,
    /// Acknowledgments received.
    pub acks_received: u64,
    /// Acknowledgments that acknowledged nothing new.
    pub acks_duplicate: u64,
    /// Messages refused because the window was full.
    pub held_back: u64,
    /// Members that the sender stopped waiting for.
    pub slow: u64,
    /// Messages that are no longer retransmitted to a member because it is lagging.
    pub abandoned_by_sender: u64,
    /// Horizon packets sent.
    pub horizons_sent: u64,
    /// Datagrams of groups that this node has not joined, or with this node's own id.
    pub foreign: u64,
    /// Datagrams that could not be decoded, or that acknowledge what this node never sent.
    pub malformed: u64,
}

impl Counters {
    /// Returns all counters by name.
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

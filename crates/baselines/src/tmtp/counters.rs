//! The engine's counters, in addition to those of every head of a domain.

/// Counters of a TMTP engine since it was created. The unit is packets unless the name says
/// otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages of this node that were multicast.
    pub data_sent: u64,
    /// NAKs sent.
    pub nacks_sent: u64,
    /// NAKs received, for this node or another manager.
    pub nacks_received: u64,
    /// Missing packets whose NAK was postponed because another member's NAK was heard.
    pub nacks_suppressed: u64,
    /// Missing packets and acknowledgments that were due while no manager was in the view.
    pub nobody_to_ask: u64,
    /// Acknowledgments sent.
    pub acks_sent: u64,
    /// Acknowledgments received.
    pub acks_received: u64,
    /// Times at which acknowledgments were overdue and a packet was due for retransmission.
    pub timeouts: u64,
    /// Members that this node stopped waiting for.
    pub slow: u64,
    /// Messages of this node that were refused because the window was full.
    pub held_back: u64,
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
            ("nacks_sent", self.nacks_sent),
            ("nacks_received", self.nacks_received),
            ("nacks_suppressed", self.nacks_suppressed),
            ("nobody_to_ask", self.nobody_to_ask),
            ("acks_sent", self.acks_sent),
            ("acks_received", self.acks_received),
            ("timeouts", self.timeouts),
            ("slow", self.slow),
            ("held_back", self.held_back),
            ("foreign", self.foreign),
            ("malformed", self.malformed),
        ]
    }
}

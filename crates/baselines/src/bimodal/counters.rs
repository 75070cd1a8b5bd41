//! The engine's counters, in addition to those of every receiver.

/// Counters of a Bimodal Multicast engine since it was created. The unit is packets unless the name
/// says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages of this node that were multicast.
    pub data_sent: u64,
    /// Rounds of gossip, including empty ones.
    pub rounds: u64,
    /// Digests sent.
    pub digests_sent: u64,
    /// Digests received.
    pub digests_received: u64,
    /// Solicitations sent.
    pub solicits_sent: u64,
    /// Messages solicited.
    pub messages_solicited: u64,
    /// Retransmissions sent.
    pub retransmissions_sent: u64,
    /// Solicited messages that were not sent because the round's limit was reached.
    pub retransmissions_limited: u64,
    /// Solicited messages that are no longer kept, or whose deadline has passed.
    pub solicits_unanswerable: u64,
    /// Solicitations that arrived too late: they answer the digest of an earlier round.
    pub solicits_stale: u64,
    /// Messages evicted from the history because it was full.
    pub history_dropped: u64,
    /// Datagrams of groups that this node has not joined, or with this node's own id.
    pub foreign: u64,
    /// Datagrams that could not be decoded.
    pub malformed: u64,
}

impl Counters {
    /// Returns all counters by name.
    pub fn named(&self) -> [(&'static str, u64); 13] {
        [
            ("data_sent", self.data_sent),
            ("rounds", self.rounds),
            ("digests_sent", self.digests_sent),
            ("digests_received", self.digests_received),
            ("solicits_sent", self.solicits_sent),
            ("messages_solicited", self.messages_solicited),
            ("retransmissions_sent", self.retransmissions_sent),
            ("retransmissions_limited", self.retransmissions_limited),
            ("solicits_unanswerable", self.solicits_unanswerable),
            ("solicits_stale", self.solicits_stale),
            ("history_dropped", self.history_dropped),
            ("foreign", self.foreign),
            ("malformed", self.malformed),
        ]
    }
}

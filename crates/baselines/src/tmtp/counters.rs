//! What the engine counts, beside what every head of a domain counts.

/// Counters of a TMTP engine since it was made. Packets unless the name says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages of this node that were multicast.
    pub data_sent: u64,
    /// Requests sent.
    pub nacks_sent: u64,
    /// Requests received, to whomever.
    pub nacks_received: u64,
    /// Missing packets that were not asked for because another member was heard to ask.
    pub nacks_suppressed: u64,
    /// Missing packets, and acknowledgements, that were due while nobody was there to take them.
    pub nobody_to_ask: u64,
    /// Acknowledgements sent.
    pub acks_sent: u64,
    /// Acknowledgements received.
    pub acks_received: u64,
    /// Times at which acknowledgements were overdue and packets were sent again.
    pub timeouts: u64,
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

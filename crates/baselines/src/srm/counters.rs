//! What the engine counts, beside what every receiver counts.

/// Counters of an SRM engine since it was made. Packets unless the name says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages of this node that were multicast.
    pub data_sent: u64,
    /// Requests sent.
    pub requests_sent: u64,
    /// Requests received.
    pub requests_received: u64,
    /// Requests that were put off because another member's was heard.
    pub requests_suppressed: u64,
    /// Requests heard although this member had put off its own just before (ignore-backoff).
    pub requests_ignored: u64,
    /// Requests for what this node has repaired, or heard repaired, less than three distances ago.
    pub requests_held_down: u64,
    /// Requests for what this node had and has no more.
    pub requests_unanswerable: u64,
    /// Repairs sent.
    pub repairs_sent: u64,
    /// Repairs not sent because another member's was heard.
    pub repairs_suppressed: u64,
    /// Repairs of what was there already.
    pub repairs_duplicate: u64,
    /// Repairs not prepared because too many wait, or because their deadline has passed.
    pub repairs_refused: u64,
    /// Session messages sent.
    pub sessions_sent: u64,
    /// Bytes in them.
    pub session_bytes: u64,
    /// Reports that had to wait for the next session message.
    pub reports_put_off: u64,
    /// Distances measured.
    pub distances_measured: u64,
    /// Members whose session messages there was no room to remember.
    pub peers_refused: u64,
    /// Datagrams of groups that this node is not in, or with its own id.
    pub foreign: u64,
    /// Datagrams that could not be decoded, or speak of what this node never sent.
    pub malformed: u64,
}

impl Counters {
    /// All counters by name.
    pub fn named(&self) -> [(&'static str, u64); 18] {
        [
            ("data_sent", self.data_sent),
            ("requests_sent", self.requests_sent),
            ("requests_received", self.requests_received),
            ("requests_suppressed", self.requests_suppressed),
            ("requests_ignored", self.requests_ignored),
            ("requests_held_down", self.requests_held_down),
            ("requests_unanswerable", self.requests_unanswerable),
            ("repairs_sent", self.repairs_sent),
            ("repairs_suppressed", self.repairs_suppressed),
            ("repairs_duplicate", self.repairs_duplicate),
            ("repairs_refused", self.repairs_refused),
            ("sessions_sent", self.sessions_sent),
            ("session_bytes", self.session_bytes),
            ("reports_put_off", self.reports_put_off),
            ("distances_measured", self.distances_measured),
            ("peers_refused", self.peers_refused),
            ("foreign", self.foreign),
            ("malformed", self.malformed),
        ]
    }
}

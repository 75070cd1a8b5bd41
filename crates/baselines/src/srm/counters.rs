//! The engine's counters, in addition to those of every receiver.

/// Counters of an SRM engine since it was created. The unit is packets unless the name says
/// otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages of this node that were multicast.
    pub data_sent: u64,
    /// Requests sent.
    pub requests_sent: u64,
    /// Requests received.
    pub requests_received: u64,
    /// Requests postponed because another member's request was heard.
    pub requests_suppressed: u64,
    /// Requests heard just after this member had backed off its own (ignore-backoff).
    pub requests_ignored: u64,
    /// Requests for packets that were repaired by this node, or heard repaired, less than three
    /// distances ago.
    pub requests_held_down: u64,
    /// Requests for packets that this node does not retain.
    pub requests_unanswerable: u64,
    /// Repairs sent.
    pub repairs_sent: u64,
    /// Repairs canceled because another member's repair was heard.
    pub repairs_suppressed: u64,
    /// Repairs of packets that were not missing here.
    pub repairs_duplicate: u64,
    /// Repairs not scheduled because too many are pending, or because the message's deadline has
    /// passed.
    pub repairs_refused: u64,
    /// Session messages sent.
    pub sessions_sent: u64,
    /// Bytes of session messages sent.
    pub session_bytes: u64,
    /// Reports that were postponed to the next session message.
    pub reports_put_off: u64,
    /// Distances measured.
    pub distances_measured: u64,
    /// Session messages of members beyond the bound, which were not remembered.
    pub peers_refused: u64,
    /// Datagrams of groups that this node has not joined, or with this node's own id.
    pub foreign: u64,
    /// Datagrams that could not be decoded.
    pub malformed: u64,
}

impl Counters {
    /// Returns all counters by name.
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

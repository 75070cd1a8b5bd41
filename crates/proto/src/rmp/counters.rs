//! What an engine counts.

use alloc::vec::Vec;

/// Counters of an [`Rmp`](super::Rmp) engine, all groups together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say what crossed the wire")]
pub struct Counters {
    pub data_sent: u64,
    pub data_resent: u64,
    pub data_received: u64,
    pub data_duplicate: u64,
    pub data_unknown_source: u64,
    pub data_too_far: u64,
    pub rounds_sent: u64,
    pub nulls_sent: u64,
    pub rounds_resent: u64,
    pub rounds_received: u64,
    pub rounds_impossible: u64,
    pub rounds_too_far: u64,
    pub confirms_sent: u64,
    pub nacks_sent: u64,
    pub nacks_answered: u64,
    pub requests_sent: u64,
    pub notices_sent: u64,
    pub reformations_begun: u64,
    pub reformations_aborted: u64,
    pub reformations_done: u64,
    pub locks_granted: u64,
    pub locks_refused: u64,
    pub locks_lost: u64,
    pub minorities: u64,
    pub removals: u64,
    pub delivered: u64,
    pub bytes_delivered: u64,
    pub foreign: u64,
    pub malformed: u64,
}

impl Counters {
    /// All counters, by name.
    pub(super) fn by_name(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("data_sent", self.data_sent),
            ("data_resent", self.data_resent),
            ("data_received", self.data_received),
            ("data_duplicate", self.data_duplicate),
            ("data_unknown_source", self.data_unknown_source),
            ("data_too_far", self.data_too_far),
            ("rounds_sent", self.rounds_sent),
            ("nulls_sent", self.nulls_sent),
            ("rounds_resent", self.rounds_resent),
            ("rounds_received", self.rounds_received),
            ("rounds_impossible", self.rounds_impossible),
            ("rounds_too_far", self.rounds_too_far),
            ("confirms_sent", self.confirms_sent),
            ("nacks_sent", self.nacks_sent),
            ("nacks_answered", self.nacks_answered),
            ("requests_sent", self.requests_sent),
            ("notices_sent", self.notices_sent),
            ("reformations_begun", self.reformations_begun),
            ("reformations_aborted", self.reformations_aborted),
            ("reformations_done", self.reformations_done),
            ("locks_granted", self.locks_granted),
            ("locks_refused", self.locks_refused),
            ("locks_lost", self.locks_lost),
            ("minorities", self.minorities),
            ("removals", self.removals),
            ("delivered", self.delivered),
            ("bytes_delivered", self.bytes_delivered),
            ("foreign", self.foreign),
            ("malformed", self.malformed),
        ]
    }
}

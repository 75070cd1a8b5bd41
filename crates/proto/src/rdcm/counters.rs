//! What an engine counts.

use alloc::vec::Vec;

/// Counters of an [`Rdcm`](super::Rdcm) engine, all groups together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say what crossed the wire")]
pub struct Counters {
    pub data_sent: u64,
    pub data_multicast_again: u64,
    pub data_received: u64,
    pub data_beyond: u64,
    pub data_unplaced: u64,
    pub repairs_sent: u64,
    pub repairs_passed_on: u64,
    pub repairs_asked_for: u64,
    pub repairs_received: u64,
    pub repairs_useless: u64,
    pub announces_sent: u64,
    pub acks_sent: u64,
    pub acks_received: u64,
    pub reports_sent: u64,
    pub reports_received: u64,
    pub places_sent: u64,
    pub places_taken: u64,
    pub asks_sent: u64,
    pub asks_answered: u64,
    pub cuts_reported: u64,
    pub cuts_heard: u64,
    pub silences_reported: u64,
    pub silences_heard: u64,
    pub left_behind: u64,
    pub readmitted: u64,
    pub delivered: u64,
    pub bytes_delivered: u64,
    pub manager_asked: u64,
    pub manager_answered: u64,
    pub manager_late: u64,
    pub manager_lost: u64,
    pub manager_malformed: u64,
    pub foreign: u64,
    pub malformed: u64,
}

impl Counters {
    /// All of them, by name.
    pub fn by_name(&self) -> Vec<(&'static str, u64)> {
        alloc::vec![
            ("data_sent", self.data_sent),
            ("data_multicast_again", self.data_multicast_again),
            ("data_received", self.data_received),
            ("data_beyond", self.data_beyond),
            ("data_unplaced", self.data_unplaced),
            ("repairs_sent", self.repairs_sent),
            ("repairs_passed_on", self.repairs_passed_on),
            ("repairs_asked_for", self.repairs_asked_for),
            ("repairs_received", self.repairs_received),
            ("repairs_useless", self.repairs_useless),
            ("announces_sent", self.announces_sent),
            ("acks_sent", self.acks_sent),
            ("acks_received", self.acks_received),
            ("reports_sent", self.reports_sent),
            ("reports_received", self.reports_received),
            ("places_sent", self.places_sent),
            ("places_taken", self.places_taken),
            ("asks_sent", self.asks_sent),
            ("asks_answered", self.asks_answered),
            ("cuts_reported", self.cuts_reported),
            ("cuts_heard", self.cuts_heard),
            ("silences_reported", self.silences_reported),
            ("silences_heard", self.silences_heard),
            ("left_behind", self.left_behind),
            ("readmitted", self.readmitted),
            ("delivered", self.delivered),
            ("bytes_delivered", self.bytes_delivered),
            ("manager_asked", self.manager_asked),
            ("manager_answered", self.manager_answered),
            ("manager_late", self.manager_late),
            ("manager_lost", self.manager_lost),
            ("manager_malformed", self.manager_malformed),
            ("foreign", self.foreign),
            ("malformed", self.malformed),
        ]
    }
}

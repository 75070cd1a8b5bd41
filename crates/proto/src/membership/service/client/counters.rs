//! Counters of the provider: connections, frames and events.

/// Counts since the node started.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    pub(super) links_tried: u64,
    pub(super) links_welcomed: u64,
    pub(super) links_refused: u64,
    /// Attempts that failed.
    pub(super) links_failed: u64,
    /// Welcomed connections that ended.
    pub(super) links_lost: u64,
    /// Connections that were not welcomed in time, or were silent for a whole lease.
    pub(super) links_silent: u64,
    pub(super) links_nonsense: u64,
    /// Frames about groups whose settings this program does not know.
    pub(super) settings_unknown: u64,
    pub(super) frames_received: u64,
    pub(super) joins_sent: u64,
    pub(super) joins_refused: u64,
    pub(super) leaves_sent: u64,
    pub(super) resyncs_sent: u64,
    pub(super) snapshots_received: u64,
    pub(super) updates_received: u64,
    /// Updates that did not follow the known version.
    pub(super) gaps: u64,
    /// Answers to requests that are no longer pending.
    pub(super) answers_late: u64,
    pub(super) sent_elsewhere: u64,
    /// Times that the service declared this node dead.
    pub(super) expiries: u64,
    /// Times that the node continued without the service.
    pub(super) times_away: u64,
    pub(super) datagrams_malformed: u64,
}

impl Counters {
    pub(super) fn by_name(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("links_tried", self.links_tried),
            ("links_welcomed", self.links_welcomed),
            ("links_refused", self.links_refused),
            ("links_failed", self.links_failed),
            ("links_lost", self.links_lost),
            ("links_silent", self.links_silent),
            ("links_nonsense", self.links_nonsense),
            ("settings_unknown", self.settings_unknown),
            ("frames_received", self.frames_received),
            ("joins_sent", self.joins_sent),
            ("joins_refused", self.joins_refused),
            ("leaves_sent", self.leaves_sent),
            ("resyncs_sent", self.resyncs_sent),
            ("snapshots_received", self.snapshots_received),
            ("updates_received", self.updates_received),
            ("gaps", self.gaps),
            ("answers_late", self.answers_late),
            ("sent_elsewhere", self.sent_elsewhere),
            ("expiries", self.expiries),
            ("times_away", self.times_away),
            ("datagrams_malformed", self.datagrams_malformed),
        ]
    }
}

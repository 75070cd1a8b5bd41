//! Counters of a control process: connections, frames and events.

/// Counts since the process started.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    pub(super) links_accepted: u64,
    pub(super) links_refused: u64,
    /// Connections without a hello that were closed to make room for newer ones.
    pub(super) links_displaced: u64,
    /// Connections that were closed after an invalid or unexpected frame, or without a hello.
    pub(super) links_nonsense: u64,
    pub(super) frames_received: u64,
    pub(super) bytes_received: u64,
    pub(super) sessions_opened: u64,
    /// Sessions continued on a new connection before the loss of the old one was detected.
    pub(super) sessions_replaced: u64,
    pub(super) sessions_ended: u64,
    /// Leases that ended.
    pub(super) sessions_expired: u64,
    pub(super) joins_received: u64,
    pub(super) joins_refused: u64,
    pub(super) leaves_received: u64,
    pub(super) resyncs_received: u64,
    pub(super) resyncs_unchanged: u64,
    pub(super) requests_elsewhere: u64,
    pub(super) commits: u64,
    pub(super) commits_failed: u64,
    pub(super) commits_unknown: u64,
    pub(super) commits_repeated: u64,
    /// Results of commits that are no longer pending.
    pub(super) commits_late: u64,
    pub(super) changes_committed: u64,
    pub(super) reports_received: u64,
    /// Reports of nodes that were heard here meanwhile, or are not known.
    pub(super) reports_contradicted: u64,
    pub(super) detectors_failed: u64,
    pub(super) observers_opened: u64,
    /// Observers that were disconnected because they were silent for a lease.
    pub(super) observers_silent: u64,
    /// Times that several nodes were connected and none was heard, so that no node was declared
    /// dead.
    pub(super) times_cut_off: u64,
    /// Malformed requests to a multicast manager that is not here.
    pub(super) manage_malformed: u64,
    pub(super) partitions_owned: u64,
    pub(super) partitions_lost: u64,
    /// Calls that came much later than requested.
    pub(super) stalls: u64,
}

impl Counters {
    pub(super) fn by_name(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("links_accepted", self.links_accepted),
            ("links_refused", self.links_refused),
            ("links_displaced", self.links_displaced),
            ("links_nonsense", self.links_nonsense),
            ("frames_received", self.frames_received),
            ("bytes_received", self.bytes_received),
            ("sessions_opened", self.sessions_opened),
            ("sessions_replaced", self.sessions_replaced),
            ("sessions_ended", self.sessions_ended),
            ("sessions_expired", self.sessions_expired),
            ("joins_received", self.joins_received),
            ("joins_refused", self.joins_refused),
            ("leaves_received", self.leaves_received),
            ("resyncs_received", self.resyncs_received),
            ("resyncs_unchanged", self.resyncs_unchanged),
            ("requests_elsewhere", self.requests_elsewhere),
            ("commits", self.commits),
            ("commits_failed", self.commits_failed),
            ("commits_unknown", self.commits_unknown),
            ("commits_repeated", self.commits_repeated),
            ("commits_late", self.commits_late),
            ("changes_committed", self.changes_committed),
            ("reports_received", self.reports_received),
            ("reports_contradicted", self.reports_contradicted),
            ("detectors_failed", self.detectors_failed),
            ("observers_opened", self.observers_opened),
            ("observers_silent", self.observers_silent),
            ("times_cut_off", self.times_cut_off),
            ("manage_malformed", self.manage_malformed),
            ("partitions_owned", self.partitions_owned),
            ("partitions_lost", self.partitions_lost),
            ("stalls", self.stalls),
        ]
    }
}

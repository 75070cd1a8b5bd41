//! Counters of the provider: connections, frames and events.

crate::counters! {
    /// Counts since the node started.
    pub(super) struct Counters {
        links_tried,
        links_welcomed,
        links_refused,
        /// Attempts that failed.
        links_failed,
        /// Welcomed connections that ended.
        links_lost,
        /// Connections that were not welcomed in time, or were silent for a whole lease.
        links_silent,
        links_nonsense,
        /// Frames about groups whose settings this program does not know.
        settings_unknown,
        frames_received,
        joins_sent,
        joins_refused,
        leaves_sent,
        resyncs_sent,
        snapshots_received,
        updates_received,
        /// Updates that did not follow the known version.
        gaps,
        /// Answers to requests that are no longer pending.
        answers_late,
        sent_elsewhere,
        /// Times that the service declared this node dead.
        expiries,
        /// Times that the node continued without the service.
        times_away,
        datagrams_malformed,
    }
}

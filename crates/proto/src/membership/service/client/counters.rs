//! Counters of the provider: frames and events.

crate::counters! {
    pub(super) struct Counters {
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
        /// Times that the registry declared this node dead.
        expiries,
        /// Times that the node continued without the registry.
        times_away,
        datagrams_malformed,
    }
}

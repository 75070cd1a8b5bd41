crate::counters! {
    pub(super) struct Counters {
        /// Frames about groups with settings that this program does not know.
        settings_unknown,
        frames_received,
        joins_sent,
        joins_refused,
        leaves_sent,
        resyncs_sent,
        snapshots_received,
        updates_received,
        gaps,
        answers_late,
        sent_elsewhere,
        expiries,
        times_away,
        datagrams_malformed,
    }
}

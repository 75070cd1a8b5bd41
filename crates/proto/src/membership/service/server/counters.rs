crate::counters! {
    pub(super) struct Counters {
        links_accepted,
        links_refused,
        links_displaced,
        /// Connections that were closed because of an invalid or unexpected frame, or because no
        /// hello was received in time.
        links_nonsense,
        frames_received,
        bytes_received,
        sessions_opened,
        sessions_replaced,
        sessions_ended,
        sessions_expired,
        joins_received,
        joins_refused,
        leaves_received,
        resyncs_received,
        resyncs_unchanged,
        requests_elsewhere,
        commits,
        commits_failed,
        commits_unknown,
        commits_repeated,
        commits_late,
        changes_committed,
        reports_received,
        /// Reports about nodes that are unknown, or that sent something during their reported
        /// silence.
        reports_contradicted,
        detectors_failed,
        observers_opened,
        observers_silent,
        /// Times that no node was declared dead because all of several connected nodes were silent.
        times_cut_off,
        manage_malformed,
        partitions_owned,
        partitions_lost,
        stalls,
    }
}

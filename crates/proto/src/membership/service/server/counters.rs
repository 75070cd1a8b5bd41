//! Counters of a registry process: connections, frames and events.

crate::counters! {
    pub(super) struct Counters {
        links_accepted,
        links_refused,
        links_displaced,
        /// Connections that were closed after an invalid or unexpected frame, or without a hello.
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
        /// Reports of nodes that were heard here meanwhile, or are not known.
        reports_contradicted,
        detectors_failed,
        observers_opened,
        observers_silent,
        /// Times that no node was declared dead because none of several connected ones was heard.
        times_cut_off,
        manage_malformed,
        partitions_owned,
        partitions_lost,
        stalls,
    }
}

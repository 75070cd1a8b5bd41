//! Counters of a registry process: connections, frames and events.

crate::counters! {
    pub(super) struct Counters {
        links_accepted,
        links_refused,
        /// Connections without a hello that were closed to make room for newer ones.
        links_displaced,
        /// Connections that were closed after an invalid or unexpected frame, or without a hello.
        links_nonsense,
        frames_received,
        bytes_received,
        sessions_opened,
        /// Sessions continued on a new connection before the loss of the old one was detected.
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
        /// Results of commits that are no longer pending.
        commits_late,
        changes_committed,
        reports_received,
        /// Reports of nodes that were heard here meanwhile, or are not known.
        reports_contradicted,
        detectors_failed,
        observers_opened,
        /// Observers that were disconnected because they were silent for a lease.
        observers_silent,
        /// Times that several nodes were connected and none was heard, so that no node was declared
        /// dead.
        times_cut_off,
        /// Malformed requests to a multicast manager that is not here.
        manage_malformed,
        partitions_owned,
        partitions_lost,
        /// Calls that came much later than requested.
        stalls,
    }
}

//! Counters of an engine.

crate::counters! {
    /// Counters of an [`Rmp`](super::Rmp) engine, summed over all groups.
    #[allow(missing_docs, reason = "the names say what crossed the wire")]
    pub struct Counters {
        data_sent,
        data_resent,
        data_received,
        data_duplicate,
        data_unknown_source,
        data_too_far,
        rounds_sent,
        nulls_sent,
        rounds_resent,
        rounds_received,
        rounds_impossible,
        rounds_too_far,
        confirms_sent,
        nacks_sent,
        nacks_answered,
        requests_sent,
        requests_refused,
        notices_sent,
        reformations_begun,
        reformations_aborted,
        reformations_done,
        locks_granted,
        locks_refused,
        locks_lost,
        requests_delivered,
        requests_repeated,
        calls_made,
        calls_repeated,
        calls_replied,
        calls_acknowledged,
        calls_unanswered,
        calls_foreign,
        calls_refused,
        calls_unknown,
        calls_replayed,
        replies_sent,
        replies_resent,
        replies_forgotten,
        answers_duplicate,
        looks_made,
        looks_answered,
        looks_too_often,
        looks_too_full,
        lists_unasked,
        forwarded,
        name_collisions,
        joins_contradicting,
        messages_given_up,
        minorities,
        /// Changes of the number of voters to one that is too small for a quorum.
        quorums_lacked,
        /// Reformations that an operator let continue without a quorum.
        quorums_forced,
        /// Refused requests of operators to continue without a quorum: they did not name this
        /// node's ring, or the ring worked.
        forces_refused,
        /// Refused requests to join of voters beyond the electorate.
        voters_refused,
        /// Refused requests to join a ring that has its maximum number of members.
        members_refused,
        /// Lists of reformations that were not accepted because too many others may already hold.
        lists_refused,
        /// Lists from which an initiator has released the members that had accepted them.
        lists_released,
        /// Packets that were not sent because they do not fit the maximum number of parts.
        packets_too_large,
        removals,
        delivered,
        bytes_delivered,
        foreign,
        malformed,
    }
}

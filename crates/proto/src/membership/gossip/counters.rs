//! Counters of gossip membership: datagrams and events.

use super::packet::Packet;

crate::counters! {
    pub(super) struct Counters {
        datagrams_sent,
        bytes_sent,
        swim_sent,
        hellos_sent,
        digests_sent,
        changes_sent,
        pulls_sent,
        goodbyes_sent,
        challenges_sent,
        path_challenges_sent,
        path_responses_sent,
        swim_received,
        hellos_received,
        digests_received,
        changes_received,
        pulls_received,
        goodbyes_received,
        challenges_received,
        path_challenges_received,
        path_responses_received,
        /// Damaged datagrams, or those of another program.
        datagrams_malformed,
        datagrams_of_other_networks,
        /// This node's own datagrams, returned by multicast or because the node is its own seed.
        datagrams_own,
        /// Datagrams of nodes that have sent a goodbye, or of incarnations that have ended.
        datagrams_late,
        restarts,
        queue_dropped,
        /// Reports of nodes beyond the limit.
        nodes_refused,
        /// Datagrams in the name of a node that did not come from its address.
        datagrams_elsewhere,
        /// Datagrams from addresses that have not shown that they receive.
        datagrams_unvalidated,
        /// Updates about third nodes that were not accepted without querying those nodes.
        hearsay_dropped,
        /// Reports that a node had stopped that the node itself refuted.
        reports_refuted,
        /// Queries omitted because the datagram that caused them was too small.
        asks_refused,
        subscriptions_refused,
        /// Rows of others' subscriptions with settings that this program does not understand.
        subscriptions_unknown,
        /// Subscription changes that did not come from a live owner.
        changes_of_strangers,
        nodes_up,
        nodes_left,
        nodes_failed,
        /// Failed probes of this node after which the member was given time to answer.
        suspicions,
        suspicions_refuted,
        /// Suspicions of others about a recently heard member, from which a refutation was
        /// requested.
        hearsay_challenged,
        /// Times that this node was wrongly declared dead and came back.
        rejoins,
        pulls_given_up,
        /// 1 if the node stopped waiting for data that its contact had announced.
        settled_incomplete,
    }
}

impl Counters {
    pub(super) fn count_sent(&mut self, packet: &Packet, bytes: usize) {
        self.datagrams_sent += 1;
        self.bytes_sent += bytes as u64;
        *match packet {
            Packet::Swim(_) => &mut self.swim_sent,
            Packet::Hello(_) => &mut self.hellos_sent,
            Packet::Digest(_) => &mut self.digests_sent,
            Packet::Changes(_) => &mut self.changes_sent,
            Packet::Pull(_) => &mut self.pulls_sent,
            Packet::Goodbye(_) => &mut self.goodbyes_sent,
            Packet::Suspicion { .. } => &mut self.challenges_sent,
            Packet::PathChallenge(_) => &mut self.path_challenges_sent,
            Packet::PathResponse(_) => &mut self.path_responses_sent,
        } += 1;
    }

    pub(super) fn count_received(&mut self, packet: &Packet) {
        *match packet {
            Packet::Swim(_) => &mut self.swim_received,
            Packet::Hello(_) => &mut self.hellos_received,
            Packet::Digest(_) => &mut self.digests_received,
            Packet::Changes(_) => &mut self.changes_received,
            Packet::Pull(_) => &mut self.pulls_received,
            Packet::Goodbye(_) => &mut self.goodbyes_received,
            Packet::Suspicion { .. } => &mut self.challenges_received,
            Packet::PathChallenge(_) => &mut self.path_challenges_received,
            Packet::PathResponse(_) => &mut self.path_responses_received,
        } += 1;
    }
}

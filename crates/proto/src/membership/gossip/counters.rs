//! Counters of gossip membership: datagrams and events.

use super::packet::Packet;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    pub(super) datagrams_sent: u64,
    pub(super) bytes_sent: u64,
    pub(super) swim_sent: u64,
    pub(super) hellos_sent: u64,
    pub(super) digests_sent: u64,
    pub(super) changes_sent: u64,
    pub(super) pulls_sent: u64,
    pub(super) goodbyes_sent: u64,
    pub(super) challenges_sent: u64,
    pub(super) path_challenges_sent: u64,
    pub(super) path_responses_sent: u64,
    pub(super) swim_received: u64,
    pub(super) hellos_received: u64,
    pub(super) digests_received: u64,
    pub(super) changes_received: u64,
    pub(super) pulls_received: u64,
    pub(super) goodbyes_received: u64,
    pub(super) challenges_received: u64,
    pub(super) path_challenges_received: u64,
    pub(super) path_responses_received: u64,
    /// Damaged datagrams, or those of another program.
    pub(super) datagrams_malformed: u64,
    /// Datagrams of nodes of other networks.
    pub(super) datagrams_of_other_networks: u64,
    /// This node's own datagrams, returned by multicast or because the node is its own seed.
    pub(super) datagrams_own: u64,
    /// Datagrams of nodes that have sent a goodbye, or of incarnations that have ended.
    pub(super) datagrams_late: u64,
    /// Nodes that restarted under the same id.
    pub(super) restarts: u64,
    /// Datagrams that were not sent because the queue was full.
    pub(super) queue_dropped: u64,
    /// Reports of nodes beyond the limit.
    pub(super) nodes_refused: u64,
    /// Datagrams in the name of a node that did not come from its address.
    pub(super) datagrams_elsewhere: u64,
    /// Datagrams from addresses that have not shown that they receive.
    pub(super) datagrams_unvalidated: u64,
    /// Updates about third nodes that were not accepted without querying those nodes.
    pub(super) hearsay_dropped: u64,
    /// Reports that a node had stopped that the node itself refuted.
    pub(super) reports_refuted: u64,
    /// Queries omitted because the datagram that caused them was too small.
    pub(super) asks_refused: u64,
    /// Subscriptions beyond the limit.
    pub(super) subscriptions_refused: u64,
    /// Rows of others' subscriptions with settings that this program does not understand.
    pub(super) subscriptions_unknown: u64,
    /// Subscription changes that did not come from a live owner.
    pub(super) changes_of_strangers: u64,
    pub(super) nodes_up: u64,
    pub(super) nodes_left: u64,
    pub(super) nodes_failed: u64,
    /// Failed probes of this node after which the member was given time to answer.
    pub(super) suspicions: u64,
    /// Suspicions of this node that the suspected member refuted.
    pub(super) suspicions_refuted: u64,
    /// Suspicions of others about a recently heard member, from which a refutation was requested.
    pub(super) hearsay_challenged: u64,
    /// Times that this node was wrongly declared dead and came back.
    pub(super) rejoins: u64,
    pub(super) pulls_given_up: u64,
    /// 1 if the node stopped waiting for data that its contact had announced.
    pub(super) settled_incomplete: u64,
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

    pub(super) fn by_name(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("datagrams_sent", self.datagrams_sent),
            ("bytes_sent", self.bytes_sent),
            ("swim_sent", self.swim_sent),
            ("hellos_sent", self.hellos_sent),
            ("digests_sent", self.digests_sent),
            ("changes_sent", self.changes_sent),
            ("pulls_sent", self.pulls_sent),
            ("goodbyes_sent", self.goodbyes_sent),
            ("challenges_sent", self.challenges_sent),
            ("path_challenges_sent", self.path_challenges_sent),
            ("path_responses_sent", self.path_responses_sent),
            ("swim_received", self.swim_received),
            ("hellos_received", self.hellos_received),
            ("digests_received", self.digests_received),
            ("changes_received", self.changes_received),
            ("pulls_received", self.pulls_received),
            ("goodbyes_received", self.goodbyes_received),
            ("challenges_received", self.challenges_received),
            ("path_challenges_received", self.path_challenges_received),
            ("path_responses_received", self.path_responses_received),
            ("datagrams_malformed", self.datagrams_malformed),
            ("datagrams_of_other_networks", self.datagrams_of_other_networks),
            ("datagrams_own", self.datagrams_own),
            ("datagrams_late", self.datagrams_late),
            ("restarts", self.restarts),
            ("queue_dropped", self.queue_dropped),
            ("nodes_refused", self.nodes_refused),
            ("datagrams_elsewhere", self.datagrams_elsewhere),
            ("datagrams_unvalidated", self.datagrams_unvalidated),
            ("hearsay_dropped", self.hearsay_dropped),
            ("reports_refuted", self.reports_refuted),
            ("asks_refused", self.asks_refused),
            ("subscriptions_refused", self.subscriptions_refused),
            ("subscriptions_unknown", self.subscriptions_unknown),
            ("changes_of_strangers", self.changes_of_strangers),
            ("nodes_up", self.nodes_up),
            ("nodes_left", self.nodes_left),
            ("nodes_failed", self.nodes_failed),
            ("suspicions", self.suspicions),
            ("suspicions_refuted", self.suspicions_refuted),
            ("hearsay_challenged", self.hearsay_challenged),
            ("rejoins", self.rejoins),
            ("pulls_given_up", self.pulls_given_up),
            ("settled_incomplete", self.settled_incomplete),
        ]
    }
}

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
        datagrams_malformed,
        datagrams_of_other_networks,
        datagrams_own,
        datagrams_late,
        restarts,
        queue_dropped,
        nodes_refused,
        /// Datagrams from an address that is not that of the node in whose name they were sent.
        datagrams_elsewhere,
        datagrams_unvalidated,
        hearsay_dropped,
        reports_refuted,
        /// Queries that were not sent because the datagram that caused them was too small.
        asks_refused,
        subscriptions_refused,
        subscriptions_unknown,
        changes_of_strangers,
        nodes_up,
        nodes_left,
        nodes_failed,
        suspicions,
        suspicions_refuted,
        /// Challenges to members that other nodes suspect and that this node has heard recently.
        hearsay_challenged,
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
        let [sent, _] = self.of_kind(packet);
        *sent += 1;
    }

    pub(super) fn count_received(&mut self, packet: &Packet) {
        let [_, received] = self.of_kind(packet);
        *received += 1;
    }

    fn of_kind(&mut self, packet: &Packet) -> [&mut u64; 2] {
        match packet {
            Packet::Swim(_) => [&mut self.swim_sent, &mut self.swim_received],
            Packet::Hello(_) => [&mut self.hellos_sent, &mut self.hellos_received],
            Packet::Digest(_) => [&mut self.digests_sent, &mut self.digests_received],
            Packet::Changes(_) => [&mut self.changes_sent, &mut self.changes_received],
            Packet::Pull(_) => [&mut self.pulls_sent, &mut self.pulls_received],
            Packet::Goodbye(_) => [&mut self.goodbyes_sent, &mut self.goodbyes_received],
            Packet::Suspicion { .. } => [&mut self.challenges_sent, &mut self.challenges_received],
            Packet::PathChallenge(_) => {
                [&mut self.path_challenges_sent, &mut self.path_challenges_received]
            }
            Packet::PathResponse(_) => {
                [&mut self.path_responses_sent, &mut self.path_responses_received]
            }
        }
    }
}

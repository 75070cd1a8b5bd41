//! Counters of the engine.

crate::counters! {
    /// Counters of a lateral engine, in packets unless the name indicates another unit.
    #[allow(missing_docs, reason = "most names say what is counted")]
    pub struct Counters {
        /// Packets multicast by this node that carry messages or fragments.
        data_sent,
        /// Number of fragments among the packets in `data_sent`.
        pieces_sent,
        /// Messages accepted but not fully sent, because this node left the group.
        messages_unsent,
        /// Data packets received by multicast, without duplicates.
        data_received,
        /// Data packets added to repair bins. This node's own packets are included only with
        /// `own_packets`.
        packets_binned,
        /// Repairs sent, counted once for each target.
        repairs_sent,
        /// Symbols XORed into repairs, counted once for all targets: on average, at most c per
        /// binned packet.
        xors,
        /// Partly filled batches that were sent because of their age.
        bins_flushed,
        /// Repairs of batches sent early because of a view change, counted once for each target.
        repairs_cut_short,
        /// Failed draws of a repair target, because open batches held all nodes of the region.
        targets_short,
        /// Repair targets that were drawn although another open batch held them.
        targets_shared,
        repairs_received,
        /// Repairs received whose packets were all held already.
        repairs_redundant,
        /// Repairs received with a packet that is neither held nor missing.
        repairs_unusable,
        /// Repairs received with several missing packets.
        repairs_pending,
        /// Pending repairs dropped because of their age or a lack of room.
        repairs_dropped,
        /// Repairs dropped because of the limit on unknown packets or the limit on work.
        repairs_over_budget,
        /// Repairs that contradict themselves or known packets, and invalid solutions.
        repairs_contradictory,
        /// Packets found to be missing, including those skipped in a jump.
        missing,
        recovered,
        /// Recovered packets whose multicast arrived later. They were not lost in the network.
        overtaken,
        /// Missing packets that arrived because this node requested them by NAK.
        retransmitted,
        /// Missing packets that arrived late by multicast.
        late,
        /// Packets reported as lost: those given up, and all packets of a lost large message.
        lost,
        messages_put_together,
        /// Incomplete messages that were lost or dropped, such as when this node left the group.
        messages_broken,
        /// Incomplete messages that began before the first packet that this node was owed.
        messages_joined_late,
        /// Messages lost for lack of reassembly memory, including those evicted to make room for
        /// another.
        messages_without_room,
        /// Total time for which recovered packets were known to be missing, in nanoseconds.
        recovered_wait_ns,
        /// Total time for which retransmitted packets were known to be missing, in nanoseconds.
        retransmitted_wait_ns,
        /// Data packets and retransmissions that were already held or settled, or not missing.
        duplicates,
        naks_sent,
        ids_asked,
        naks_received,
        /// NAKs with a wrong cookie, which were answered with the right one.
        challenges_sent,
        retransmissions_sent,
        /// Requested packets that were not retransmitted because of the limit `answers_per_second`.
        answers_suppressed,
        have_nots_sent,
        have_nots_received,
        /// Heartbeats sent, including requests for acknowledgments and answers to opens.
        heartbeats_sent,
        acks_sent,
        opens_sent,
        evicted_by_age,
        evicted_by_bytes,
        /// Datagrams that are invalid, belong to unknown groups, or contain an invalid symbol or
        /// fragment.
        malformed,
        /// Packets of unknown senders, dropped because the group already had `streams_per_group`
        /// senders.
        streams_refused,
        /// Datagrams whose sequence number is too far ahead to be accepted without confirmation.
        jumps_doubted,
        /// Packets that seem to come from another incarnation of their sender. Acknowledgments
        /// addressed to another node or incarnation are included.
        other_incarnations,
        /// Packets in repairs, retransmissions and have-nots from nodes that are not members.
        from_strangers,
        /// Streams that were restarted because their sender was restarted.
        streams_restarted,
        /// Answers from senders that refuted claims about their streams.
        claims_refuted,
        outbox_dropped,
        bytes_sent,
        repair_bytes_sent,
    }
}

impl Counters {
    /// Returns the share of repairs among all packets, or 0 before the first packet. The share is
    /// repairs sent / (repairs sent + packets binned), by design c / (r + c) (Slingshot 3.2).
    pub fn overhead(&self) -> f64 {
        let all = self.repairs_sent + self.packets_binned;
        if all == 0 { 0.0 } else { self.repairs_sent as f64 / all as f64 }
    }

    /// Returns the number of XORs per binned packet, or 0 before the first packet.
    pub fn xors_per_packet(&self) -> f64 {
        let packets = self.packets_binned;
        if packets == 0 { 0.0 } else { self.xors as f64 / packets as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overhead_and_xors_follow_from_what_was_binned() {
        let (repairs_sent, packets_binned, xors) = (500, 800, 4_000);
        let counters = Counters { repairs_sent, packets_binned, xors, ..Counters::default() };
        assert!((counters.overhead() - 5.0 / 13.0).abs() < 1e-9);
        assert!((counters.xors_per_packet() - 5.0).abs() < 1e-9);
        assert_eq!(Counters::default().overhead(), 0.0);
    }
}

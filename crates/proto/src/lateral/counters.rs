//! Counters of the engine, from which every figure of the papers and every drop can be derived.

crate::counters! {
    /// Counters of a lateral engine, in packets unless the name indicates another unit.
    pub struct Counters {
        /// Packets multicast by this node that carry messages or fragments.
        data_sent,
        /// Of these: fragments.
        pieces_sent,
        /// Messages accepted but not sent in full because this node left the group.
        messages_unsent,
        /// Data packets received by multicast, without duplicates.
        data_received,
        /// Data packets added to repair bins. Own ones are among them only with `own_packets`.
        packets_binned,
        /// Repairs sent, one for each target.
        repairs_sent,
        /// Symbols XORed into repairs, once for all targets. On average at most c for each packet.
        xors,
        /// Batches sent partly filled because of their age.
        bins_flushed,
        /// Repairs of batches sent early because of a view change, one for each target.
        repairs_cut_short,
        /// Failed draws of a repair target, because open batches held the whole region.
        targets_short,
        /// Repair targets drawn although another open batch held them.
        targets_shared,
        /// Repairs received.
        repairs_received,
        /// Repairs received whose packets were all held.
        repairs_redundant,
        /// Repairs received with a packet that is neither held nor missing.
        repairs_unusable,
        /// Repairs received of which several packets were missing.
        repairs_pending,
        /// Pending repairs dropped for age or lack of room.
        repairs_dropped,
        /// Repairs dropped by the limits on unknown packets and on work.
        repairs_over_budget,
        /// Repairs that contradict themselves or known packets, and invalid solutions.
        repairs_contradictory,
        /// Packets noticed to be missing, including those skipped in a jump.
        missing,
        /// Missing packets recovered from repairs.
        recovered,
        /// Of these: packets whose own multicast arrived later. They were not lost.
        overtaken,
        /// Missing packets that arrived because they were requested by NAK.
        retransmitted,
        /// Missing packets that arrived later by their own multicast.
        late,
        /// Packets reported as lost: those given up, and all packets of a lost large message.
        lost,
        /// Messages reassembled from fragments and delivered.
        messages_put_together,
        /// Messages received in part that were lost, or were incomplete when this node left.
        messages_broken,
        /// Messages received in part that began before this node was owed anything.
        messages_joined_late,
        /// Messages lost for lack of reassembly memory, including those evicted for another one.
        messages_without_room,
        /// Total time for which recovered packets were known to be missing, in nanoseconds.
        recovered_wait_ns,
        /// Total time for which retransmitted packets were known to be missing, in nanoseconds.
        retransmitted_wait_ns,
        /// Data packets and retransmissions that were held, settled or not missing here.
        duplicates,
        /// NAK datagrams sent.
        naks_sent,
        /// Packet ids in NAKs sent.
        ids_asked,
        /// NAK datagrams received.
        naks_received,
        /// NAKs with a wrong cookie, answered with the right one.
        challenges_sent,
        /// Retransmissions sent.
        retransmissions_sent,
        /// Requested packets left unanswered because of the limit `answers_per_second`.
        answers_suppressed,
        /// Have-not datagrams sent.
        have_nots_sent,
        /// Have-not datagrams received.
        have_nots_received,
        /// Heartbeats sent, including requests for acknowledgments and answers to opens.
        heartbeats_sent,
        /// Acknowledgments sent.
        acks_sent,
        /// Opens sent.
        opens_sent,
        /// Packets evicted from the data buffer because of their age.
        evicted_by_age,
        /// Packets evicted from the data buffer because it was full.
        evicted_by_bytes,
        /// Datagrams that do not decode, of unknown groups, or with an invalid symbol or fragment.
        malformed,
        /// Datagrams of senders or streams for which there is no room.
        streams_refused,
        /// Datagrams with a sequence number too far ahead to be believed at once.
        jumps_doubted,
        /// Data packets and heartbeats of an incarnation of their sender that is not the known one,
        /// and acknowledgments meant for another incarnation at this node's address.
        other_incarnations,
        /// Packets in repairs, retransmissions and have-nots of nodes that are not members.
        from_strangers,
        /// Streams restarted because their sender was restarted.
        streams_restarted,
        /// Senders' answers that refuted claims about their streams.
        claims_refuted,
        /// Datagrams dropped because too many were queued.
        outbox_dropped,
        /// Bytes of all datagrams sent.
        bytes_sent,
        /// Bytes of all repairs sent.
        repair_bytes_sent,
    }
}

impl Counters {
    /// Returns repairs as a share of all packets: repairs sent / (repairs sent + packets binned).
    /// It is c / (r + c) by design (Slingshot 3.2). 0 before the first packet.
    pub fn overhead(&self) -> f64 {
        let all = self.repairs_sent + self.packets_binned;
        if all == 0 { 0.0 } else { self.repairs_sent as f64 / all as f64 }
    }

    /// Returns the number of XORs per packet binned. 0 before the first packet.
    pub fn xors_per_packet(&self) -> f64 {
        let packets = self.packets_binned;
        if packets == 0 { 0.0 } else { self.xors as f64 / packets as f64 }
    }
}

//! What the engine counts. Every figure of the papers, and every drop, can be told from these.

/// Counters of a lateral engine since it was made. Packets unless the name says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets with messages of this node, or with pieces of them, that were multicast.
    pub data_sent: u64,
    /// Of these: pieces of messages that do not fit a packet.
    pub pieces_sent: u64,
    /// Messages that were taken and not sent, or not as a whole, because this node left the group.
    pub messages_unsent: u64,
    /// Data packets that came by multicast, duplicates not counted.
    pub data_received: u64,
    /// Data packets accounted into repair bins: received ones, and own ones if those take part.
    pub packets_binned: u64,
    /// Repairs sent, one for each target.
    pub repairs_sent: u64,
    /// Blocks XORed into outgoing repairs: at most c per packet binned, on average.
    pub xors: u64,
    /// Bins that were sent part-filled because of their age.
    pub bins_flushed: u64,
    /// Repairs, one for each target, of bins that were sent part-filled because members joined or
    /// left.
    pub repairs_cut_short: u64,
    /// Repair targets that had to be drawn later because open fills held all nodes of the region;
    /// counted again at each attempt.
    pub targets_short: u64,
    /// Repair targets that were drawn although another open fill held them: the two repairs may
    /// have packets in common.
    pub targets_shared: u64,
    /// Repairs received.
    pub repairs_received: u64,
    /// Repairs whose packets were all there.
    pub repairs_redundant: u64,
    /// Repairs that contain a packet which is no longer, or never was, of concern here.
    pub repairs_unusable: u64,
    /// Repairs that had to wait because several of their packets were missing.
    pub repairs_pending: u64,
    /// Pending repairs dropped for age or want of room.
    pub repairs_dropped: u64,
    /// Pending repairs given up because too many packets were missing or the equations took too
    /// long to bring in order.
    pub repairs_over_budget: u64,
    /// Repairs whose solution was not a packet: they contradict what is known.
    pub repairs_contradictory: u64,
    /// Packets that were noticed to be missing.
    pub missing: u64,
    /// Packets recovered out of repairs (FEC).
    pub recovered: u64,
    /// Of these: packets whose own multicast came after all. They were not lost but overtaken by a
    /// repair.
    pub overtaken: u64,
    /// Packets that came because they were asked for (NAK).
    pub retransmitted: u64,
    /// Missing packets that came by their own multicast after all.
    pub late: u64,
    /// Packets told as lost: those given up, and all those of a message that cannot be whole.
    pub lost: u64,
    /// Messages of several packets that were put together and delivered.
    pub messages_put_together: u64,
    /// Messages of several packets of which some came and that cannot be whole: packets were given
    /// up, the time was over, there was no room, or this node left.
    pub messages_broken: u64,
    /// Messages of several packets that began before this node was owed anything.
    pub messages_joined_late: u64,
    /// Messages of several packets for which there was no room, or that made room for another.
    pub messages_without_room: u64,
    /// Sum over recovered packets of the time they were known to be missing, nanoseconds.
    pub recovered_wait_ns: u64,
    /// The same over retransmitted packets.
    pub retransmitted_wait_ns: u64,
    /// Data packets and retransmissions of what was there already.
    pub duplicates: u64,
    /// NAK datagrams sent.
    pub naks_sent: u64,
    /// Packet ids in them.
    pub ids_asked: u64,
    /// NAK datagrams received.
    pub naks_received: u64,
    /// NAKs with a wrong cookie, which were answered with the right one.
    pub challenges_sent: u64,
    /// Retransmissions sent.
    pub retransmissions_sent: u64,
    /// Askings that went unanswered because answers are limited in rate.
    pub answers_suppressed: u64,
    /// Have-not datagrams sent.
    pub have_nots_sent: u64,
    /// Have-not datagrams received.
    pub have_nots_received: u64,
    /// Heartbeats sent, answers to opens included.
    pub heartbeats_sent: u64,
    /// Acknowledgements sent.
    pub acks_sent: u64,
    /// Opens sent.
    pub opens_sent: u64,
    /// Packets evicted from the data buffer because they were old.
    pub evicted_by_age: u64,
    /// Packets evicted from the data buffer because it was full.
    pub evicted_by_bytes: u64,
    /// Datagrams that could not be decoded.
    pub malformed: u64,
    /// Datagrams of senders or streams that there is no room for.
    pub streams_refused: u64,
    /// Datagrams with a sequence number too far ahead to be believed at once.
    pub jumps_doubted: u64,
    /// Data packets and heartbeats of another start of their sender than the one that is known, and
    /// acknowledgements for another start at this node's address.
    pub other_incarnations: u64,
    /// Packets in repairs, in retransmissions and in answers of nodes that are not in their group.
    pub from_strangers: u64,
    /// Streams that began anew because their sender was started again.
    pub streams_restarted: u64,
    /// Answers of senders that refuted what had been claimed of their streams.
    pub claims_refuted: u64,
    /// Datagrams dropped because too many waited to be sent.
    pub outbox_dropped: u64,
    /// Bytes of all datagrams sent.
    pub bytes_sent: u64,
    /// Bytes of all repairs sent.
    pub repair_bytes_sent: u64,
}

impl Counters {
    /// Repairs as a share of all packets: repairs sent / (repairs sent + packets binned). It is
    /// c / (r + c) by design (Slingshot 3.2). 0 before the first packet.
    pub fn overhead(&self) -> f64 {
        let all = self.repairs_sent + self.packets_binned;
        if all == 0 { 0.0 } else { self.repairs_sent as f64 / all as f64 }
    }

    /// XORs per packet that was put into bins. 0 before the first packet.
    pub fn xors_per_packet(&self) -> f64 {
        let packets = self.packets_binned;
        if packets == 0 { 0.0 } else { self.xors as f64 / packets as f64 }
    }

    /// All counters by name.
    pub fn named(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("data_sent", self.data_sent),
            ("pieces_sent", self.pieces_sent),
            ("messages_unsent", self.messages_unsent),
            ("data_received", self.data_received),
            ("packets_binned", self.packets_binned),
            ("repairs_sent", self.repairs_sent),
            ("xors", self.xors),
            ("bins_flushed", self.bins_flushed),
            ("repairs_cut_short", self.repairs_cut_short),
            ("targets_short", self.targets_short),
            ("targets_shared", self.targets_shared),
            ("repairs_received", self.repairs_received),
            ("repairs_redundant", self.repairs_redundant),
            ("repairs_unusable", self.repairs_unusable),
            ("repairs_pending", self.repairs_pending),
            ("repairs_dropped", self.repairs_dropped),
            ("repairs_over_budget", self.repairs_over_budget),
            ("repairs_contradictory", self.repairs_contradictory),
            ("missing", self.missing),
            ("recovered", self.recovered),
            ("overtaken", self.overtaken),
            ("retransmitted", self.retransmitted),
            ("late", self.late),
            ("lost", self.lost),
            ("messages_put_together", self.messages_put_together),
            ("messages_broken", self.messages_broken),
            ("messages_joined_late", self.messages_joined_late),
            ("messages_without_room", self.messages_without_room),
            ("recovered_wait_ns", self.recovered_wait_ns),
            ("retransmitted_wait_ns", self.retransmitted_wait_ns),
            ("duplicates", self.duplicates),
            ("naks_sent", self.naks_sent),
            ("ids_asked", self.ids_asked),
            ("naks_received", self.naks_received),
            ("challenges_sent", self.challenges_sent),
            ("retransmissions_sent", self.retransmissions_sent),
            ("answers_suppressed", self.answers_suppressed),
            ("have_nots_sent", self.have_nots_sent),
            ("have_nots_received", self.have_nots_received),
            ("heartbeats_sent", self.heartbeats_sent),
            ("acks_sent", self.acks_sent),
            ("opens_sent", self.opens_sent),
            ("evicted_by_age", self.evicted_by_age),
            ("evicted_by_bytes", self.evicted_by_bytes),
            ("malformed", self.malformed),
            ("streams_refused", self.streams_refused),
            ("jumps_doubted", self.jumps_doubted),
            ("other_incarnations", self.other_incarnations),
            ("from_strangers", self.from_strangers),
            ("streams_restarted", self.streams_restarted),
            ("claims_refuted", self.claims_refuted),
            ("outbox_dropped", self.outbox_dropped),
            ("bytes_sent", self.bytes_sent),
            ("repair_bytes_sent", self.repair_bytes_sent),
        ]
    }
}

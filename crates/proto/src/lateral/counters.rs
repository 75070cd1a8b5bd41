//! Counters of the engine, from which every figure of the papers and every drop can be derived.

/// Counters of a lateral engine since its creation, in packets unless the name indicates another
/// unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets multicast by this node that carry messages or fragments.
    pub data_sent: u64,
    /// Of these: fragments.
    pub pieces_sent: u64,
    /// Messages accepted but not sent in full because this node left the group.
    pub messages_unsent: u64,
    /// Data packets received by multicast, without duplicates.
    pub data_received: u64,
    /// Data packets added to repair bins: received ones, and own ones if
    /// [`Config::own_packets`](super::Config::own_packets) is set.
    pub packets_binned: u64,
    /// Repairs sent, one for each target.
    pub repairs_sent: u64,
    /// Symbols XORed into repairs. A repair for several targets counts once. On average at most c
    /// for each packet binned.
    pub xors: u64,
    /// Batches sent partly filled because of their age.
    pub bins_flushed: u64,
    /// Repairs of batches sent early because of a view change, one for each target.
    pub repairs_cut_short: u64,
    /// Repair targets postponed because open batches held the whole region; counted at each
    /// attempt.
    pub targets_short: u64,
    /// Repair targets drawn although another open batch held them. The two repairs may have packets
    /// in common.
    pub targets_shared: u64,
    /// Repairs received.
    pub repairs_received: u64,
    /// Repairs received whose packets were all held.
    pub repairs_redundant: u64,
    /// Repairs received with a packet that is neither held nor missing.
    pub repairs_unusable: u64,
    /// Repairs received of which several packets were missing.
    pub repairs_pending: u64,
    /// Pending repairs dropped for age or lack of room.
    pub repairs_dropped: u64,
    /// Repairs dropped by the limits on unknown packets and on work.
    pub repairs_over_budget: u64,
    /// Repairs that contradict themselves or known packets, and solutions that are not a valid
    /// symbol.
    pub repairs_contradictory: u64,
    /// Packets noticed to be missing, including those skipped in a jump.
    pub missing: u64,
    /// Missing packets recovered from repairs.
    pub recovered: u64,
    /// Of these: packets whose own multicast arrived later. They were not lost.
    pub overtaken: u64,
    /// Missing packets that arrived because they were requested by NAK.
    pub retransmitted: u64,
    /// Missing packets that arrived later by their own multicast.
    pub late: u64,
    /// Packets reported as lost: those given up, and all packets of a lost large message.
    pub lost: u64,
    /// Messages reassembled from fragments and delivered.
    pub messages_put_together: u64,
    /// Messages received in part that were lost or were incomplete when this node left. Causes of a
    /// loss: packets given up, deadline passed, or no room.
    pub messages_broken: u64,
    /// Messages received in part that began before this node was owed anything.
    pub messages_joined_late: u64,
    /// Messages lost for lack of reassembly memory, including those evicted for another one.
    pub messages_without_room: u64,
    /// Total time for which recovered packets were known to be missing, in nanoseconds.
    pub recovered_wait_ns: u64,
    /// Total time for which retransmitted packets were known to be missing, in nanoseconds.
    pub retransmitted_wait_ns: u64,
    /// Data packets and retransmissions that were held, settled or not missing here.
    pub duplicates: u64,
    /// NAK datagrams sent.
    pub naks_sent: u64,
    /// Packet ids in NAKs sent.
    pub ids_asked: u64,
    /// NAK datagrams received.
    pub naks_received: u64,
    /// NAKs with a wrong cookie, answered with the right one.
    pub challenges_sent: u64,
    /// Retransmissions sent.
    pub retransmissions_sent: u64,
    /// Requested packets left unanswered because of
    /// [`NakConfig::answers_per_second`](super::NakConfig::answers_per_second).
    pub answers_suppressed: u64,
    /// Have-not datagrams sent.
    pub have_nots_sent: u64,
    /// Have-not datagrams received.
    pub have_nots_received: u64,
    /// Heartbeats sent, including requests for acknowledgments and answers to opens.
    pub heartbeats_sent: u64,
    /// Acknowledgments sent.
    pub acks_sent: u64,
    /// Opens sent.
    pub opens_sent: u64,
    /// Packets evicted from the data buffer because of their age.
    pub evicted_by_age: u64,
    /// Packets evicted from the data buffer because it was full.
    pub evicted_by_bytes: u64,
    /// Datagrams that do not decode, belong to a group that was not joined, or contain an invalid
    /// symbol or fragment.
    pub malformed: u64,
    /// Datagrams of senders or streams for which there is no room.
    pub streams_refused: u64,
    /// Datagrams with a sequence number too far ahead to be believed at once.
    pub jumps_doubted: u64,
    /// Data packets and heartbeats of an incarnation of their sender that is not the known one, and
    /// acknowledgments meant for another incarnation at this node's address.
    pub other_incarnations: u64,
    /// Packets in repairs, retransmissions and have-nots of nodes that are not members of the
    /// group.
    pub from_strangers: u64,
    /// Streams restarted because their sender was restarted.
    pub streams_restarted: u64,
    /// Senders' answers that refuted claims about their streams.
    pub claims_refuted: u64,
    /// Datagrams dropped because too many were queued.
    pub outbox_dropped: u64,
    /// Bytes of all datagrams sent.
    pub bytes_sent: u64,
    /// Bytes of all repairs sent.
    pub repair_bytes_sent: u64,
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

    /// Returns all counters with their names.
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

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::Incarnation;
use crate::OrderedGroups as _;
use crate::ring::{Handler, ListChangeKind, LockName, Locks, Member, Qos, Quorum, RingView};
use crate::rmp::seen::Seen;
use crate::wire::Datagram;

fn seqnos() -> impl Strategy<Value = SeqNo> {
    any::<u32>().prop_map(SeqNo)
}

fn timestamps() -> impl Strategy<Value = Timestamp> {
    any::<u64>().prop_map(Timestamp)
}

fn bytes() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..40).prop_map(Bytes::from)
}

fn processes() -> impl Strategy<Value = Process> {
    any::<(u64, u64)>().prop_map(|(node, life)| Process { node: NodeId(node), life })
}

fn epochs() -> impl Strategy<Value = Epoch> {
    (any::<u32>(), processes()).prop_map(|(version, creator)| Epoch { version, creator })
}

fn members() -> impl Strategy<Value = Member> {
    let quorum = (1_u16..).prop_filter_map("no partition", Quorum::from_wire);
    (processes(), quorum, any::<(bool, bool)>()).prop_map(
        |(process, quorum, (is_multicast, is_voter))| Member {
            process,
            quorum,
            is_multicast,
            is_voter,
        },
    )
}

fn changes() -> impl Strategy<Value = ListChange> {
    let names = || any::<u64>().prop_map(LockName);
    let kinds = prop_oneof![
        (members(), any::<u32>())
            .prop_map(|(member, name_check)| ListChangeKind::Join { member, name_check }),
        Just(ListChangeKind::Leave),
        (names(), any::<bool>()).prop_map(|(name, waits)| ListChangeKind::Lock { name, waits }),
        names().prop_map(ListChangeKind::Unlock),
        names().prop_map(ListChangeKind::Refused),
    ];
    (processes(), any::<u32>(), kinds).prop_map(|(process, request, kind)| ListChange {
        process,
        request,
        kind,
    })
}

fn runs() -> impl Strategy<Value = Vec<Run>> {
    let run = (processes(), seqnos(), 1_u16..);
    vec(run.prop_map(|(source, first, count)| Run { source, first, count }), 0..5)
}

fn rounds(what: impl Strategy<Value = What>) -> impl Strategy<Value = Round> {
    (timestamps(), processes(), processes(), what).prop_map(|(at, site, next, what)| Round {
        at,
        site,
        next,
        what,
    })
}

fn views() -> impl Strategy<Value = RingView> {
    let (members, asks) = (vec(members(), 1..5), vec((0_u64..3, processes()), 0..5));
    (epochs(), any::<u32>(), epochs(), members, asks).prop_map(
        |(epoch, version, origin, mut members, asks): (_, _, _, Vec<Member>, Vec<_>)| {
            members.sort_by_key(|member| member.process.node);
            members.dedup_by_key(|member| member.process.node);
            let mut locks = Locks::default();
            asks.into_iter().for_each(|(name, process)| locks.ask(LockName(name), process));
            let name_check = version.rotate_left(7);
            let is_forced = version % 2 == 1;
            RingView { epoch, version, origin, name_check, is_forced, members, locks }
        },
    )
}

fn positions() -> impl Strategy<Value = Position> {
    (timestamps(), any::<bool>(), vec((processes(), seqnos()), 0..4))
        .prop_map(|(next, is_whole, received)| Position { next, is_whole, received })
}

fn data() -> impl Strategy<Value = DataPacket> {
    let qos = prop_oneof![
        Just(Qos::Unreliable),
        Just(Qos::Unordered),
        Just(Qos::SourceOrdered),
        Just(Qos::TotallyOrdered),
        (1_u8..).prop_map(Qos::Resilient),
        Just(Qos::MajorityResilient),
        Just(Qos::TotallyResilient),
    ];
    let handler = prop::option::of((0_u8..6).prop_map(|it| Handler::new(it).expect("below 6")));
    let data = (seqnos(), qos, handler, any::<[bool; 4]>(), bytes()).prop_map(
        |(message, qos, handler, [is_first, is_last, may_wait, is_call], payload)| Data {
            message,
            qos,
            handler,
            is_call,
            is_first,
            is_last,
            may_wait,
            payload,
        },
    );
    (processes(), seqnos(), data).prop_map(|(source, seqno, data)| DataPacket {
        source,
        seqno,
        data,
    })
}

fn snapshots() -> impl Strategy<Value = Snapshot> {
    let sources = (processes(), seqnos(), 0_u32..100, any::<u32>()).prop_map(
        |(source, open_from, open, request)| SourceState {
            source,
            open_from,
            ordered_to: open_from.plus(open),
            request,
        },
    );
    let guests = (processes(), seqnos(), 0_u32..100, timestamps()).prop_map(
        |(source, open_from, open, used)| GuestState {
            source,
            open_from,
            ordered_to: open_from.plus(open),
            used,
        },
    );
    let seen = any::<(u64, u32, u128)>()
        .prop_map(|(node, base, bits)| (NodeId(node), Seen { base, bits }));
    let lists = (vec(sources, 0..4), vec(guests, 0..3), vec(seen, 0..3));
    (views(), timestamps(), timestamps(), any::<bool>(), lists).prop_map(
        |(view, next, ordered, is_working, (sources, mut guests, seen))| {
            guests.retain(|guest| !view.contains(guest.source));
            let token = view.members[0].process;
            Snapshot { view, next, ordered, token, is_working, sources, guests, seen }
        },
    )
}

fn lists() -> impl Strategy<Value = NewList> {
    let proposals = (epochs(), positions(), views(), vec(epochs(), 0..3))
        .prop_map(|(base, position, view, refuted)| Proposal { base, position, view, refuted });
    prop_oneof![
        (epochs(), rounds(vec(changes(), 1..=16).prop_map(What::List)))
            .prop_map(|(epoch, round)| NewList::Change { epoch, round }),
        snapshots().prop_map(NewList::Whole),
        (proposals, any::<bool>())
            .prop_map(|(proposal, is_committed)| NewList::Formation { proposal, is_committed }),
    ]
}

fn recovery() -> impl Strategy<Value = Packet> {
    let [refuted, released] = [(); 2].map(|()| vec(epochs(), 0..3));
    let accepted = (epochs(), any::<u16>(), vec(processes(), 0..4))
        .prop_map(|(ballot, least, members)| Accepted { ballot, least, members });
    prop_oneof![
        (epochs(), epochs(), positions(), refuted, released).prop_map(
            |(epoch, ballot, position, refuted, released)| {
                Packet::RecoveryStart { epoch, ballot, position, refuted, released }
            }
        ),
        (epochs(), epochs(), positions(), vec(accepted, 0..3)).prop_map(
            |(epoch, ballot, position, accepted)| {
                Packet::RecoveryVote { epoch, ballot, position, accepted }
            }
        ),
        epochs().prop_map(|ballot| Packet::RecoveryAckNewList { ballot }),
        (epochs(), epochs()).prop_map(|(ballot, seen)| Packet::RecoveryAbort { ballot, seen }),
    ]
}

fn non_member_data() -> impl Strategy<Value = NonMemberData> {
    let data = (prop::option::of(epochs()), any::<bool>(), data()).prop_map(
        |(epoch, is_first, mut data)| {
            data.source.node = NodeId(9);
            NonMemberData::Data { epoch, is_first, data }
        },
    );
    let pull =
        any::<(u32, u32)>().prop_map(|(number, offset)| NonMemberData::Pull { number, offset });
    prop_oneof![data, pull]
}

fn non_member_acks() -> impl Strategy<Value = NonMemberAck> {
    prop_oneof![
        (epochs(), any::<u64>(), seqnos()).prop_map(|(epoch, life, to)| NonMemberAck::Placed {
            epoch,
            life,
            to
        }),
        (epochs(), any::<u32>())
            .prop_map(|(epoch, number)| NonMemberAck::Delivered { epoch, number }),
        (epochs(), any::<u32>(), 0_u32..1000, any::<bool>(), bytes()).prop_map(
            |(epoch, number, offset, is_end, bytes)| {
                let total = offset + bytes.len() as u32;
                NonMemberAck::Reply { epoch, number, total, offset, is_end, bytes }
            }
        ),
    ]
}

fn packets() -> impl Strategy<Value = Packet> {
    let asked = prop::option::of((1_u64..).prop_map(NodeId));
    let nacks = (epochs(), asked, timestamps(), timestamps(), runs())
        .prop_map(|(epoch, asked, from, to, runs)| Nack { epoch, asked, from, to, runs });
    let parts = (any::<u32>(), 0_u8..=254, bytes()).prop_map(|(id, index, bytes)| Part {
        id,
        index,
        count: index + 1,
        bytes,
    });
    prop_oneof![
        data().prop_map(Packet::Data),
        non_member_data().prop_map(Packet::NonMemberData),
        non_member_acks().prop_map(Packet::NonMemberAck),
        (epochs(), rounds(runs().prop_map(What::Order)))
            .prop_map(|(epoch, round)| Packet::Ack { epoch, round }),
        (epochs(), timestamps()).prop_map(|(epoch, at)| Packet::Confirm { epoch, at }),
        nacks.prop_map(Packet::Nack),
        lists().prop_map(Packet::NewList),
        (prop::option::of(epochs()), changes())
            .prop_map(|(epoch, change)| Packet::ListChangeRequest { epoch, change }),
        recovery(),
        parts.prop_map(Packet::Part),
    ]
}

fn datagram(packet: &Packet) -> Vec<u8> {
    let mut out = Vec::new();
    packet.encode(&mut out, GroupId(5), NodeId(9), 3);
    out
}

fn decoded(datagram: &[u8]) -> Result<Packet, DecodeError> {
    let (header, body) = Header::decode(datagram)?;
    Packet::decode(&header, body)
}

#[test]
fn an_ack_on_the_wire_is_this() {
    let process = |node| Process { node: NodeId(node), life: 1 };
    let epoch = Epoch { version: 2, creator: process(7) };
    let what = What::Order(vec![Run { source: process(8), first: SeqNo(5), count: 2 }]);
    let round = Round { at: Timestamp(8), site: process(9), next: process(7), what };
    let golden = [
        0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 1, // epoch: version, creator
        0, 0, 0, 0, 0, 0, 0, 8, // timestamp
        0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 1, // token site
        0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 1, // next token site
        0, 0, 1, // it orders one run
        0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 1, // source of the run
        0, 0, 0, 5, 0, 2, // its first packet, and how many
    ];
    let datagram = datagram(&Packet::Ack { epoch, round });
    assert_eq!(datagram[3..5], [4, 2]);
    assert_eq!(datagram[HEADER_BYTES..], golden);
}

#[test]
fn data_on_the_wire_is_this() {
    let data = Data {
        message: SeqNo(4),
        qos: Qos::Resilient(2),
        handler: Handler::new(0),
        is_call: false,
        is_first: true,
        is_last: false,
        may_wait: true,
        payload: Bytes::from_static(b"x"),
    };
    let mut source = Process { node: NodeId(9), life: 1 };
    let packet = DataPacket { source, seqno: SeqNo(6), data };
    let own = datagram(&Packet::Data(packet.clone()));
    let golden = [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 6, 0, 0, 0, 4, 4, 2, 1, 5, b'x'];
    assert_eq!(own[HEADER_BYTES..], golden);
    assert_eq!(own.len(), DATA_BYTES + 1);
    source.node = NodeId(1);
    let on_behalf = datagram(&Packet::Data(DataPacket { source, ..packet }));
    assert_eq!(on_behalf.len(), DATA_BYTES + 8 + 1);
}

fn member() -> (crate::rmp::Rmp, crate::Time, Epoch) {
    use crate::{Engine, GroupSettings, Profile, Time};
    let mut engine = crate::rmp::Rmp::new(NodeId(1), crate::rmp::Config::default(), 1);
    let profile = Profile::Ordered(Quorum::AtLeast(1));
    let mut now = Time(1_000_000_000);
    let settings = GroupSettings { profile, name_check: 0 };
    engine.join(now, GroupId(5), settings).expect("it is new to it");
    while engine.view(GroupId(5)).is_none() {
        now = engine.poll_timeout().expect("it asks again").at;
        engine.handle_timeout(now);
    }
    let handler = Handler::new(0).expect("there are six");
    engine.lock(now, GroupId(5), handler.lock()).expect("it is free");
    let epoch = engine.view(GroupId(5)).expect("it has begun one").epoch;
    (engine, now, epoch)
}

fn of_ring(packet: Packet, ring: Epoch) -> Packet {
    match packet {
        Packet::Confirm { at, .. } => Packet::Confirm { epoch: ring, at },
        Packet::Nack(nack) => Packet::Nack(Nack { epoch: ring, ..nack }),
        Packet::ListChangeRequest { change, .. } => {
            let process = Process { node: NodeId(9), ..change.process };
            let kind = match change.kind {
                ListChangeKind::Join { member, .. } => {
                    let member = Member { process, ..member };
                    ListChangeKind::Join { member, name_check: 0 }
                }
                kind => kind,
            };
            let change = ListChange { process, kind, ..change };
            let is_join = matches!(kind, ListChangeKind::Join { .. });
            Packet::ListChangeRequest { epoch: (!is_join).then_some(ring), change }
        }
        Packet::NonMemberData(NonMemberData::Data { mut data, .. }) => {
            let epoch = Some(ring).filter(|_| data.seqno.0 % 2 == 0);
            data.data.is_call = true;
            NonMemberData::Data { epoch, is_first: data.seqno.0 % 3 > 0, data }.into()
        }
        Packet::NewList(NewList::Whole(mut snapshot)) => {
            snapshot.view.name_check = 0;
            Packet::NewList(NewList::Whole(snapshot))
        }
        other => other,
    }
}

impl From<NonMemberData> for Packet {
    fn from(data: NonMemberData) -> Self {
        Self::NonMemberData(data)
    }
}

proptest! {
    #[test]
    fn member_survives_any_sequence_of_packets(
        packets in vec((packets(), any::<bool>(), 0_u64..20), 1..40),
    ) {
        use crate::Engine;
        let (mut engine, mut now, epoch) = member();
        for (packet, is_of_ring, millis) in packets {
            let packet = if is_of_ring { of_ring(packet, epoch) } else { packet };
            if let Ok(datagram) = Datagram::parse(&datagram(&packet)) {
                engine.handle_datagram(now, &datagram);
            }
            engine.check();
            now = now + core::time::Duration::from_millis(millis);
            engine.handle_timeout(now);
            engine.check();
            while engine.poll_event().is_some() {}
            while engine.poll_transmit(&mut Vec::new()).is_some() {}
        }
    }

    #[test]
    fn decoding_is_the_inverse_of_encoding(packet in packets()) {
        prop_assert_eq!(decoded(&datagram(&packet)), Ok(packet));
    }

    #[test]
    fn truncated_or_extended_packet_is_not_decoded(packet in packets(), cut in 1_usize..20) {
        let whole = datagram(&packet);
        let mut short = whole[..whole.len() - cut.min(whole.len() - HEADER_BYTES)].to_vec();
        wire::seal(&mut short, 0);
        let is_open_ended = matches!(
            packet,
            Packet::Data(_)
                | Packet::Part(_)
                | Packet::NonMemberData(NonMemberData::Data { .. })
                | Packet::NonMemberAck(NonMemberAck::Reply { .. })
        );
        if short.len() < whole.len() && !is_open_ended {
            prop_assert!(decoded(&short).is_err());
        }
        let mut long = whole;
        long.push(0);
        wire::seal(&mut long, 0);
        prop_assert!(decoded(&long).is_err() || is_open_ended);
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        kind: u8, flags: u8, body in vec(any::<u8>(), 0..200),
    ) {
        let header = Header {
            protocol: Protocol::Ordered, kind, flags, group: GroupId(1), sender: NodeId(1), view: 0,
            incarnation: Incarnation::default(),
        };
        let _ = Packet::decode(&header, &body);
    }
}

#[test]
fn the_largest_ack_fits_a_datagram() {
    for path_mtu in [576, 1500, 9000] {
        let config = crate::rmp::Config { path_mtu, ..crate::rmp::Config::default() };
        let process = |node| Process { node: NodeId(node), life: 1 };
        let run = |node| Run { source: process(node), first: SeqNo(5), count: 2 };
        let what = What::Order((0..config.max_runs() as u64).map(run).collect());
        let round = Round { at: Timestamp(8), site: process(9), next: process(7), what };
        let epoch = Epoch { version: 2, creator: process(7) };
        let bytes = datagram(&Packet::Ack { epoch, round }).len();
        let spare = usize::from(path_mtu) - 28 - bytes;
        assert!(spare < RUN_BYTES, "{spare} bytes are left of {path_mtu}");
    }
}

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::ring::{Handler, ListChangeKind, Member, Qos, Quorum, RingView, process};
use crate::wire::Datagram;

fn packets() -> impl Strategy<Value = Packet> {
    any::<Packet>().prop_map(|mut packet| {
        match &mut packet {
            Packet::NewList(NewList::Whole(snapshot)) => make_valid(snapshot),
            Packet::NewList(NewList::Formation { proposal, .. }) => sort(&mut proposal.view),
            Packet::NonMemberData(NonMemberData::Data { data, .. }) => data.source.node = NodeId(9),
            Packet::NonMemberAck(NonMemberAck::Reply { total, offset, bytes, .. }) => {
                *offset %= 1000;
                *total = *offset + bytes.len() as u32;
            }
            Packet::Part(part) => {
                part.index = part.index.min(254);
                part.count = part.index + 1;
            }
            _ => {}
        }
        packet
    })
}

fn make_valid(snapshot: &mut Snapshot) {
    let Snapshot { view, token, sources, guests, .. } = snapshot;
    sort(view);
    *token = view.members[0].process;
    guests.retain(|guest| !view.contains(guest.source));
    for source in sources {
        source.ordered_to = source.open_from.plus(source.ordered_to.0 % 100);
    }
    for guest in guests {
        guest.ordered_to = guest.open_from.plus(guest.ordered_to.0 % 100);
    }
}

fn sort(view: &mut RingView) {
    view.members.sort_by_key(|member| member.process.node);
    view.members.dedup_by_key(|member| member.process.node);
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
    let epoch = Epoch { version: 2, creator: process(7) };
    let what = What::Order(vec![Run { source: process(8), first: SeqNo(5), count: 2 }]);
    let round = Round { at: Timestamp(8), site: process(9), next: process(7), what };
    let golden = [
        0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 1, // epoch: version, creator
        0, 0, 0, 0, 0, 0, 0, 8, // timestamp
        0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 1, // token site
        0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 1, // next token site
        0, 0, 1, // an order of one run
        0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 1, // source of the run
        0, 0, 0, 5, 0, 2, // first packet and number of packets
    ];
    let datagram = datagram(&Packet::Ack { epoch, round });
    assert_eq!(datagram[3..5], [4, 2]);
    assert_eq!(datagram[HEADER_BYTES..], golden);
}

#[test]
fn data_on_the_wire_is_this() {
    let whole = Data::whole(SeqNo(4), Qos::Resilient(2), Bytes::from_static(b"x"));
    let data = Data { handler: Handler::new(0), is_last: false, may_wait: true, ..whole };
    let mut source = process(9);
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
    engine.join(now, GroupId(5), settings).expect("the group is new");
    while engine.view(GroupId(5)).is_none() {
        now = engine.poll_timeout().expect("the joiner repeats its request").at;
        engine.handle_timeout(now);
    }
    let handler = Handler::new(0).expect("there are six handlers");
    engine.lock(now, GroupId(5), handler.lock()).expect("the lock is free");
    let epoch = engine.view(GroupId(5)).expect("the node has created a ring").epoch;
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
        let header = Header::new(Protocol::Ordered, kind, GroupId(1), NodeId(1));
        let _ = Packet::decode(&Header { flags, ..header }, &body);
    }
}

#[test]
fn the_largest_ack_fits_a_datagram() {
    for path_mtu in [576, 1500, 9000] {
        let config = crate::rmp::Config { path_mtu, ..crate::rmp::Config::default() };
        let run = |node| Run { source: process(node), first: SeqNo(5), count: 2 };
        let what = What::Order((0..config.max_runs() as u64).map(run).collect());
        let round = Round { at: Timestamp(8), site: process(9), next: process(7), what };
        let epoch = Epoch { version: 2, creator: process(7) };
        let bytes = datagram(&Packet::Ack { epoch, round }).len();
        let spare = usize::from(path_mtu) - 28 - bytes;
        assert!(spare < RUN_BYTES, "{spare} bytes are left of {path_mtu}");
    }
}

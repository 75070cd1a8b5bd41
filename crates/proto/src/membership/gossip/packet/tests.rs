use core::net::{Ipv6Addr, SocketAddr};

use super::*;
use crate::{Endpoint, Profile, RateOfFire};
use proptest::prelude::*;

const SENDER: NodeId = NodeId(0x1122_3344_5566_7788);
const NO_CHANGES: Changes = Changes {
    answer_wanted: false,
    more: false,
    owner: NodeId(2),
    after: 0,
    up_to: 0,
    floor: 0,
    rows: Vec::new(),
    unknown: 0,
};

fn decoded(datagram: &[u8]) -> Result<(u32, Origin, Packet), DecodeError> {
    Packet::decode(&Datagram::parse(datagram)?)
}

fn identity(node: u64) -> Identity {
    let endpoint = Endpoint(SocketAddr::from(([10, 0, 0, 7], 7400)));
    Identity { node: NodeId(node), bump: 3, endpoint }
}

fn subscription() -> Subscription {
    let profile = Profile::TimeCritical(RateOfFire::new(8, 5));
    Subscription {
        settings: GroupSettings { profile, name_check: 0xAABB_CCDD },
        joined_at: Time(9),
    }
}

fn hex(packet: &Packet) -> String {
    let datagram = packet.encode(0, SENDER);
    assert_eq!(datagram[..4], [0xCA, 0x70, 2, 2]);
    assert_eq!(decoded(&datagram), Ok((0, Origin::from(SENDER), packet.clone())));
    let header = &datagram[4..HEADER_BYTES];
    assert_eq!(
        header[8..],
        [&[0, 0, 0, 0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88][..], &[0; 12]].concat()
    );
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    format!("{} {}", hex(&header[..8]), hex(&datagram[HEADER_BYTES..]))
}

#[test]
fn every_packet_on_the_wire_is_this() {
    let ipv6 = Endpoint(SocketAddr::from((Ipv6Addr::LOCALHOST, 1)));
    let entry = DigestEntry { identity: identity(2), version: 5, subscriptions: 4 };
    let digest = Digest {
        answer_wanted: true,
        roster_wanted: true,
        chunk: 1,
        chunks: 2,
        entries: vec![entry],
    };
    let rows = vec![
        Row { version: 5, group: GroupId(0x0102_0304), subscription: Some(subscription()) },
        Row { version: 7, group: GroupId(0x0506_0708), subscription: None },
    ];
    let changes = Changes { more: true, after: 4, up_to: 8, floor: 1, rows, ..NO_CHANGES };
    let hello = Hello { alone: true, to_all: false, challenge: 9, from: identity(1) };
    let far = Hello { from: Identity { endpoint: ipv6, ..identity(1) }, ..hello };
    let (by, suspect) = (identity(1), identity(2));
    let golden = [
        (Packet::Swim(vec![0xAB]), "010000255f27ad9c ab"),
        (
            Packet::Hello(hello),
            "0201003f7c217dba 00000000000000090000000000000001000000031ce8040a000007",
        ),
        (
            Packet::Hello(far),
            "0201004b32cb4d03 000000000000000900000000000000010000000300010600\
             000000000000000000000000000001",
        ),
        (
            Packet::Digest(digest),
            "03030043a6546f59 000100020000000000000002000000031ce8040a0000070\
             000000500000004",
        ),
        (
            Packet::Changes(changes),
            "0402005a6da2773a 00000000000000020000000400000008000000010000000\
             5010203040101080500aabbccdd0000000000000009000000070506070800",
        ),
        (
            Packet::Pull(vec![Wanted { node: NodeId(2), after: 4, up_to: 8, floor: 1 }]),
            "05000038519e9c8e 0000000000000002000000040000000800000001",
        ),
        (Packet::Goodbye(NodeId(2)), "0600002cef878553 0000000000000002"),
        (
            Packet::Suspicion { by, suspect, incarnation: 6 },
            "0700004c07d3c581 0000000000000001000000031ce8040a000007000000000\
             0000002000000031ce8040a0000070006",
        ),
        (Packet::PathChallenge(5), "0800002cc8835622 0000000000000005"),
        (
            Packet::PathResponse(PathResponse { cookie: 5, challenge: 6, from: by }),
            "09000047aa1c7950 0000000000000005000000000000000600000000000\
             00001000000031ce8040a000007",
        ),
    ];
    for (packet, expected) in golden {
        assert_eq!(hex(&packet), expected, "{packet:?}");
    }
}

#[test]
fn a_row_with_unknown_settings_hides_no_other_row() {
    let row =
        |version| Row { version, group: GroupId(version), subscription: Some(subscription()) };
    let changes = Changes { up_to: 3, rows: vec![row(1), row(2), row(3)], ..NO_CHANGES };
    let mut datagram = Packet::Changes(changes.clone()).encode(0, SENDER);
    // The profile of the second row, after its version, group and presence byte.
    datagram[HEADER_BYTES + 20 + ROW_BYTES + 9] = 77;
    wire::seal(&mut datagram, 0);
    let expected = Changes { rows: vec![row(1), row(3)], unknown: 1, ..changes };
    assert_eq!(decoded(&datagram), Ok((0, Origin::from(SENDER), Packet::Changes(expected))));
}

#[test]
fn what_fits_by_the_capacities_fits() {
    for bytes in [256, 1400] {
        let endpoint = Endpoint(SocketAddr::from((Ipv6Addr::LOCALHOST, 1)));
        let identity = Identity { endpoint, ..identity(1) };
        let entry = DigestEntry { identity, version: 1, subscriptions: 1 };
        let entries = vec![entry; digest_capacity(bytes)];
        let digest = Packet::Digest(Digest { entries, ..Digest::default() });
        let row =
            |version| Row { version, group: GroupId(version), subscription: Some(subscription()) };
        let rows = (1..=changes_capacity(bytes) as u32).map(row).collect();
        let changes = Packet::Changes(Changes { up_to: 1000, rows, ..NO_CHANGES });
        let wanted = Wanted { node: NodeId(1), after: 0, up_to: 1, floor: 0 };
        let pull = Packet::Pull(vec![wanted; pull_capacity(bytes)]);
        for packet in [digest, changes, pull] {
            let length = packet.encode(0, SENDER).len();
            assert!(length <= bytes && length + 39 > bytes, "{length} of {bytes}");
        }
    }
}

fn packets() -> impl Strategy<Value = Packet> {
    any::<Packet>().prop_map(|mut packet| {
        match &mut packet {
            Packet::Hello(hello) if hello.to_all => hello.challenge = 0,
            Packet::Digest(Digest { chunk, chunks, .. }) if *chunk >= *chunks => {
                (*chunk, *chunks) = (0, 0);
            }
            Packet::Changes(Changes { after, up_to, rows, unknown, .. }) => {
                *unknown = 0;
                rows.retain(|row| row.version > 0 && row.version < u32::MAX);
                rows.sort_by_key(|row| row.version);
                rows.dedup_by_key(|row| row.version);
                *after = rows.first().map_or(7, |row| row.version - 1);
                *up_to = rows.last().map_or(9, |row| row.version + 1);
            }
            Packet::Pull(wanted) => wanted.retain(|wanted| wanted.after < wanted.up_to),
            _ => {}
        }
        packet
    })
}

proptest! {
    #[test]
    fn decoding_is_the_inverse_of_encoding(
        network: u32, sender: u64, packet in packets(),
    ) {
        let datagram = packet.encode(network, NodeId(sender));
        let expected = (network, Origin::from(NodeId(sender)), packet);
        prop_assert_eq!(decoded(&datagram), Ok(expected));
    }

    #[test]
    fn arbitrary_bodies_never_panic_and_mean_one_thing(
        kind in 0..9_u8, flags in 0..5_u8,
        body in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        let header = Header::new(Protocol::Membership, kind, GroupId(0), SENDER);
        let datagram = Header { flags, ..header }.datagram(&body);
        if let Ok((network, sender, packet)) = decoded(&datagram) {
            let is_whole = !matches!(&packet, Packet::Changes(changes) if changes.unknown > 0);
            prop_assert_eq!(packet.encode(network, sender) == datagram, is_whole);
        }
    }

    #[test]
    fn cut_and_changed_packets_never_panic(
        packet in packets(), cut in 0..2000_usize, place in 0..2000_usize, byte: u8,
    ) {
        let mut datagram = packet.encode(0, SENDER);
        datagram.truncate(HEADER_BYTES.max(cut));
        let place = HEADER_BYTES + place % datagram.len();
        if let Some(old) = datagram.get_mut(place) {
            *old = byte;
        }
        wire::seal(&mut datagram, 0);
        let _ = decoded(&datagram);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
        let _ = decoded(&bytes);
    }
}

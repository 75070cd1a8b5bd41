use core::net::{Ipv6Addr, SocketAddr};

use super::super::reader::FrameReader;
use super::*;
use crate::codec::Field as _;
use crate::membership::service::Change;
use crate::{Incarnation, Profile, RateOfFire};
use proptest::prelude::*;

fn member(node: u64) -> Member {
    let endpoint = Endpoint(SocketAddr::from(([10, 0, 0, 7], 7400)));
    Member { node: NodeId(node), incarnation: 3, start: Incarnation(0xD), endpoint }
}

fn settings(r: u8) -> GroupSettings {
    let profile = Profile::TimeCritical(RateOfFire::new(r, 5));
    GroupSettings { profile, name_check: 0xAABB_CCDD }
}

fn owners() -> Owners {
    let at = |port| Endpoint(SocketAddr::from(([10, 0, 0, 1], port)));
    Owners { partitions: 16, owned: vec![(0, at(7480)), (2, at(7481))] }
}

fn encoded(frame: &Frame) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    bytes
}

fn hex(frame: &Frame) -> String {
    let bytes = encoded(frame);
    assert_eq!(Frame::decode(&bytes[4..]), Ok(frame.clone()));
    let length = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
    assert_eq!(length, bytes.len() - 4);
    bytes[4..].iter().map(|byte| format!("{byte:02x}")).collect()
}

const ONE: &str = "000000000000000100000003000000000000000d1ce8040a000007";
const TWO: &str = "000000000000000200000003000000000000000d1ce8040a000007";
const SETTINGS: &str = "01080500aabbccdd";

#[test]
fn the_frames_that_open_a_link_are_this_on_the_wire() {
    let hello =
        Hello { role: Role::Node, cluster: "lab".into(), member: member(1), rack: "r7".into() };
    let golden = [
        (Frame::Hello(hello), format!("01ca706d73000301036c6162{ONE}027237")),
        (
            Frame::Welcome(Welcome { process: 9, lease_ms: 3000, owners: owners() }),
            "020003000000000000000900000bb80010\
             0000000200001d38040a00000100021d39040a000001"
                .into(),
        ),
        (Frame::Refused(Refusal::Version { ours: 1, theirs: 2 }), "030100010002".into()),
        (Frame::Refused(Refusal::Cluster { ours: "lab".into() }), "0302036c6162".into()),
        (Frame::Refused(Refusal::Full), "0303".into()),
        (Frame::Refused(Refusal::Nonsense), "0304".into()),
        (Frame::Alive, "0d".into()),
        (Frame::Owners(owners()), "0e00100000000200001d38040a00000100021d39040a000001".into()),
        (Frame::Expired { incarnation: 3 }, "0f00000003".into()),
        (Frame::Goodbye, "10".into()),
        (
            Frame::Report { node: NodeId(2), incarnation: 3, silent_ms: 2500 },
            "12000000000000000200000003000009c4".into(),
        ),
        (
            Frame::Watch(vec![Watched { watched: true, member: member(2) }]),
            format!("130000000101{TWO}"),
        ),
        (
            Frame::Successor { next: Some(member(2)), within_ms: 500 },
            format!("14000001f400000001{TWO}"),
        ),
        (Frame::Successor { next: None, within_ms: 0 }, "140000000000000000".into()),
        (Frame::Observe { group: GroupId::NONE }, "1500000000".into()),
        (Frame::Observed { partition: 3 }, "160003".into()),
        (Frame::Manage(vec![1, 2]), "170102".into()),
        (Frame::Managed(vec![3]), "1803".into()),
    ];
    for (frame, expected) in golden {
        assert_eq!(hex(&frame), expected, "{frame:?}");
    }
}

#[test]
fn the_frames_about_a_group_are_this_on_the_wire() {
    let (request, group) = (5, GroupId(0x0102_0304));
    let why =
        JoinRefusal::Contradiction { existing: settings(8), given: settings(4), by: NodeId(2) };
    let ipv6 = Endpoint(SocketAddr::from((Ipv6Addr::LOCALHOST, 1)));
    let snapshot = Snapshot {
        group,
        version: 7,
        more: true,
        settings: settings(8),
        members: vec![member(1), Member { endpoint: ipv6, ..member(2) }],
    };
    let change = MemberChange { kind: ChangeKind::Failed, member: member(2) };
    let update = Update { group, after: 7, version: 9, changes: vec![change] };
    let golden = [
        (
            Frame::Join { request, group, settings: settings(8) },
            format!("040000000501020304{SETTINGS}"),
        ),
        (Frame::Joined { request, group, version: 7 }, "0500000005010203040000000000000007".into()),
        (
            Frame::JoinRefused { request, group, why },
            format!("06000000050102030401{SETTINGS}01040500aabbccdd0000000000000002"),
        ),
        (
            Frame::JoinRefused { request, group, why: JoinRefusal::Unserved(Unserved::StoreFull) },
            "06000000050102030402".into(),
        ),
        (Frame::Leave { request, group }, "070000000501020304".into()),
        (Frame::Left { request, group }, "080000000501020304".into()),
        (Frame::Resync { group, have: 7 }, "09010203040000000000000007".into()),
        (Frame::Unchanged { group, version: 7 }, "0a010203040000000000000007".into()),
        (
            Frame::Snapshot(snapshot),
            format!(
                "0b01020304000000000000000701{SETTINGS}00000002{ONE}\
                 000000000000000200000003000000000000000d0001060000000000000000\
                 0000000000000001"
            ),
        ),
        (
            Frame::Update(update),
            format!("0c01020304000000000000000700000000000000090000000103{TWO}"),
        ),
        (Frame::Elsewhere { request, group }, "110000000501020304".into()),
    ];
    for (frame, expected) in golden {
        assert_eq!(hex(&frame), expected, "{frame:?}");
    }
}

#[test]
fn hello_of_another_version_is_refused_with_that_version() {
    let hello =
        Hello { role: Role::Node, cluster: String::new(), member: member(1), rack: String::new() };
    let mut bytes = encoded(&Frame::Hello(hello));
    bytes[10] = 9;
    // Fields that a later version has after its version number are not decoded.
    bytes.truncate(11);
    assert_eq!(Frame::decode(&bytes[4..]), Err(FrameError::Version { given: 9 }));
    bytes[5] = 0;
    assert_eq!(Frame::decode(&bytes[4..]), Err(FrameError::Magic));
}

#[test]
fn oversized_count_is_refused_before_allocation() {
    let mut bytes = vec![19];
    bytes.extend_from_slice(&u32::MAX.to_be_bytes());
    bytes.extend_from_slice(&[0; 64]);
    assert_eq!(Frame::decode(&bytes), Err(FrameError::Length));
}

#[test]
fn the_largest_lists_fit_into_a_frame() {
    let ipv6 = Endpoint(SocketAddr::from((Ipv6Addr::LOCALHOST, 1)));
    let change =
        MemberChange { kind: ChangeKind::Joined, member: Member { endpoint: ipv6, ..member(1) } };
    let changes = vec![change; MAX_MEMBERS_PER_FRAME];
    let update = Frame::Update(Update { group: GroupId(1), after: 0, version: 1, changes });
    assert!(encoded(&update).len() <= 4 + MAX_FRAME_BYTES);
    let owned = (0..MAX_PARTITIONS).map(|partition| (partition, ipv6)).collect();
    let owners = Owners { partitions: MAX_PARTITIONS, owned };
    let welcome = Frame::Welcome(Welcome { process: 1, lease_ms: 1, owners });
    assert!(encoded(&welcome).len() <= 4 + MAX_FRAME_BYTES);
}

fn frames_after(reader: &mut FrameReader, bytes: &[u8]) -> Vec<Frame> {
    reader.push(bytes);
    core::iter::from_fn(|| reader.next_frame().expect("these are frames")).collect()
}

#[test]
fn frames_come_out_of_a_stream_that_comes_in_single_bytes() {
    let frames = [Frame::Alive, Frame::Goodbye, Frame::Expired { incarnation: 1 }];
    let mut reader = FrameReader::default();
    let mut found = Vec::new();
    for byte in frames.iter().flat_map(encoded) {
        found.extend(frames_after(&mut reader, &[byte]));
        assert!(reader.waiting_bytes() < 9);
    }
    assert_eq!(found, frames);
    reader.push(&(MAX_FRAME_BYTES as u32 + 1).to_be_bytes());
    assert_eq!(reader.next_frame(), Err(FrameError::Length));
}

#[test]
fn frame_with_unknown_settings_is_named_and_the_next_is_read() {
    let (request, group) = (5, GroupId(7));
    let why =
        JoinRefusal::Contradiction { existing: settings(8), given: settings(8), by: NodeId(2) };
    let members = vec![member(1)];
    let snapshot = Snapshot { group, version: 7, more: false, settings: settings(8), members };
    let frames = [
        (
            Frame::Join { request, group, settings: settings(8) },
            UnknownSettings::Join { request, group },
        ),
        (
            Frame::JoinRefused { request, group, why },
            UnknownSettings::JoinRefused { request, group },
        ),
        (Frame::Snapshot(snapshot), UnknownSettings::Snapshot { group }),
    ];
    let known = settings(8).to_bytes();
    for (frame, unknown) in frames {
        let mut bytes = encoded(&frame);
        let at = bytes.windows(known.len()).position(|bytes| bytes == known).expect("it has them");
        bytes[at] = 77;
        let mut reader = FrameReader::default();
        reader.push(&bytes);
        Frame::Alive.encode(&mut bytes);
        reader.push(&bytes[bytes.len() - 5..]);
        assert_eq!(reader.next_frame(), Err(FrameError::Settings(unknown)));
        assert_eq!(reader.next_frame(), Ok(Some(Frame::Alive)));
        let longer = [&bytes[4..bytes.len() - 5], &[0]].concat();
        assert_eq!(Frame::decode(&longer), Err(FrameError::Length), "{unknown:?}");
    }
}

#[test]
fn a_text_that_is_too_long_is_cut_between_two_characters() {
    let hello = Hello {
        role: Role::Detector,
        cluster: "é".repeat(200),
        member: member(1),
        rack: String::new(),
    };
    let bytes = encoded(&Frame::Hello(hello));
    let Ok(Frame::Hello(read)) = Frame::decode(&bytes[4..]) else { panic!("a hello") };
    assert_eq!(read.cluster, "é".repeat(127));
}

pub(super) fn owned() -> impl Strategy<Value = Vec<(u16, Endpoint)>> {
    let owned = prop::collection::btree_map(0..MAX_PARTITIONS, any::<Endpoint>(), 0..20);
    owned.prop_map(|owned| owned.into_iter().collect())
}

fn frames() -> impl Strategy<Value = Frame> {
    any::<Frame>().prop_map(|mut frame| {
        if let Frame::Update(Update { after, version, .. }) = &mut frame {
            *after = (*after).min(u64::MAX - 1);
            *version = (*version).max(*after + 1);
        }
        frame
    })
}

proptest! {
    #[test]
    fn decoding_is_the_inverse_of_encoding(frame in frames()) {
        prop_assert_eq!(Frame::decode(&encoded(&frame)[4..]), Ok(frame));
    }

    #[test]
    fn a_stream_gives_the_same_frames_however_it_is_cut(
        frames in prop::collection::vec(frames(), 1..6), piece in 1..60_usize,
    ) {
        let bytes: Vec<u8> = frames.iter().flat_map(encoded).collect();
        let mut reader = FrameReader::default();
        let found = bytes.chunks(piece).flat_map(|piece| frames_after(&mut reader, piece));
        prop_assert_eq!(found.collect::<Vec<_>>(), frames);
        prop_assert_eq!(reader.waiting_bytes(), 0);
    }

    #[test]
    fn arbitrary_fields_never_panic_and_mean_one_thing(
        kind in 0..22_u8, fields in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        let body = [&[kind][..], &fields].concat();
        if let Ok(frame) = Frame::decode(&body) {
            prop_assert_eq!(&encoded(&frame)[4..], &body);
        }
    }

    #[test]
    fn cut_and_changed_frames_never_panic(
        frame in frames(), cut in 0..999_usize, place in 0..999_usize, byte: u8,
    ) {
        let mut bytes = encoded(&frame);
        let place = place % bytes.len();
        bytes[place] = byte;
        bytes.truncate(cut);
        let mut reader = FrameReader::default();
        reader.push(&bytes);
        while let Ok(Some(_)) = reader.next_frame() {}
    }

    #[test]
    fn a_change_is_read_as_it_was_written(change: Change) {
        let bytes = change.to_bytes();
        let mut rest = &bytes[..];
        prop_assert_eq!(Change::take(&mut rest), Ok(change));
        prop_assert!(rest.is_empty());
    }
}

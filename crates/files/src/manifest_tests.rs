use proptest::prelude::*;

use super::*;

const PIECE: u32 = MIN_PIECE_BYTES;

fn entry(path: &str, kind: Kind) -> Entry {
    let path = EntryPath::new(path.as_bytes()).expect("a good path");
    Entry { path, mode: 0o644, modified: None, kind }
}

fn file(path: &str, bytes: u64) -> Entry {
    entry(path, Kind::File { bytes, holes: Holes::default() })
}

fn new(entries: Vec<Entry>) -> Result<Manifest, ManifestError> {
    let pieces: u64 = entries.iter().map(|e| e.data_bytes().div_ceil(PIECE.into())).sum();
    let hashes = (0..pieces.min(1 << 22)).map(|piece| [piece as u8; 32]).collect();
    Manifest::new(PIECE, entries, hashes)
}

#[test]
fn holes_without_end_have_a_size_all_the_same() {
    let mut holes = Holes::default();
    assert!(holes.push(0, MAX_FILE_BYTES, MAX_FILE_BYTES));
    let hole = |at| {
        let kind = Kind::File { bytes: MAX_FILE_BYTES, holes: holes.clone() };
        entry(&format!("{at:02}"), kind)
    };
    let manifest = new((0..17).map(hole).collect()).expect("a good manifest");
    assert_eq!((manifest.total_bytes(), manifest.data_bytes()), (u64::MAX, 0));
}

#[test]
fn each_piece_has_its_place_in_one_file() {
    let mib = u64::from(PIECE);
    let mut holes = Holes::default();
    assert!(holes.push(0, 7 * mib, 9 * mib));
    let entries = vec![
        file("a", 2 * mib + 5),
        entry("b", Kind::Directory),
        file("b/empty", 0),
        entry("c", Kind::File { bytes: 9 * mib, holes }),
        file("d", 1),
    ];
    let manifest = new(entries).expect("a good manifest");
    let places: Vec<(usize, u64, u32)> = (0..manifest.pieces())
        .map(|piece| manifest.place(piece).expect("it is there"))
        .map(|place| (place.entry, place.packed, place.bytes))
        .collect();
    let expected = [
        (0, 0, PIECE),
        (0, mib, PIECE),
        (0, 2 * mib, 5),
        (3, 0, PIECE),
        (3, mib, PIECE),
        (4, 0, 1),
    ];
    assert_eq!(places, expected);
    assert_eq!(manifest.place(6), None);
    assert_eq!((manifest.total_bytes(), manifest.data_bytes()), (11 * mib + 6, 4 * mib + 6));
}

#[test]
fn small_manifest_is_encoded_as_documented() {
    let mut holes = Holes::default();
    assert!(holes.push(4, 65_536, 65_541));
    let modified = Some(Modified { seconds: -1, nanoseconds: 2 });
    let file = Kind::File { bytes: 65_541, holes };
    let entries = vec![
        Entry { modified, ..entry("d", Kind::Directory) },
        entry("d/f", file),
        entry("d/l", Kind::Symlink { target: b"f"[..].into() }),
    ];
    let manifest = Manifest::new(PIECE, entries, vec![[9; 32]]).expect("a good manifest");
    let mut golden = vec![1, 0x80, 0x80, 0x40, 3, 1];
    golden.extend([1, b'd', 0xA4, 3, 1, 1, 2, 0]);
    golden.extend([3, b'd', b'/', b'f', 0xA4, 3, 0, 1, 0x85, 0x80, 4, 1, 4, 0x80, 0x80, 4]);
    golden.extend([3, b'd', b'/', b'l', 0xA4, 3, 0, 2, 1, b'f']);
    golden.extend([9; 32]);
    assert_eq!(manifest.encode(), golden);
    // The id excludes modes and times. If these bytes changed, the same content would get another
    // id.
    let mut hashed = b"carom transfer 1\x00\x10\x00\x00".to_vec();
    for entry in [
        &[1, b'd', 0, 0, 0][..],
        &[3, b'd', b'/', b'f', 0, 0, 1, 0x85, 0x80, 4, 1, 4, 0x80, 0x80, 4],
        &[3, b'd', b'/', b'l', 0, 0, 2, 1, b'f'],
    ] {
        hashed.extend((entry.len() as u64).to_be_bytes());
        hashed.extend(entry);
    }
    hashed.extend([9; 32]);
    assert_eq!(manifest.id().0, *blake3::hash(&hashed).as_bytes());
}

#[test]
fn entries_out_of_order_twice_or_in_no_directory_are_refused() {
    let directory = |path| entry(path, Kind::Directory);
    for entries in [
        vec![file("b", 0), file("a", 0)],
        vec![file("a", 0), file("a", 0)],
        vec![directory("a"), file("a", 0)],
        vec![file("a/b", 0)],
        vec![file("a", 0), file("a/b", 0)],
        vec![entry("a", Kind::Symlink { target: b"x"[..].into() }), file("a/b", 0)],
        vec![directory("a"), file("b", 0), file("a/c", 0)],
        vec![directory("a"), directory("a/b"), file("a/b/c/d", 0)],
        // The byte `-` precedes `/`, but the directory does not end there.
        vec![directory("a"), file("a-", 0), file("a/b", 0)],
    ] {
        let made = new(entries.clone());
        assert!(made.is_err(), "{entries:?}");
    }
    let order = vec![directory("a"), file("a/b", 0), file("a-", 0)];
    assert!(new(order).is_ok());
}

#[test]
fn impossible_manifests_are_refused() {
    let odd = |change: fn(&mut Entry)| {
        let mut entry = file("a", 0);
        change(&mut entry);
        new(vec![entry])
    };
    assert!(odd(|_| {}).is_ok());
    assert!(odd(|entry| entry.mode = 0o4755).is_err(), "nobody runs as somebody else");
    let modified = Some(Modified { seconds: 0, nanoseconds: 1_000_000_000 });
    assert!(new(vec![Entry { modified, ..file("a", 0) }]).is_err());
    assert_eq!(new(vec![file("a", MAX_FILE_BYTES)]), Err(ManifestError::TooMany("pieces")));
    assert!(new(vec![file("a", u64::MAX)]).is_err());
    for piece_bytes in [0, 1, PIECE - 1, PIECE + 1, 2 * MAX_PIECE_BYTES] {
        let made = Manifest::new(piece_bytes, Vec::new(), Vec::new());
        assert_eq!(made, Err(ManifestError::Malformed));
    }
    let with_too_few = Manifest::new(PIECE, vec![file("a", 1)], Vec::new());
    assert_eq!(with_too_few, Err(ManifestError::Malformed));
}

#[test]
fn claims_without_bytes_behind_them_take_no_memory() {
    let head = |entries: u32, pieces: u32| {
        let mut bytes = vec![VERSION];
        append(&Head { piece_bytes: PIECE, entries, pieces }, &mut bytes);
        bytes
    };
    assert_eq!(Manifest::decode(&head(u32::MAX, u32::MAX)), Err(ManifestError::Malformed));
    let mut holes = head(1, 0);
    let kind = KindHead::File { bytes: 1 << 40, holes: u32::MAX };
    append(&EntryHead { path: b"a", mode: 0, modified: None, kind }, &mut holes);
    assert_eq!(Manifest::decode(&holes), Err(ManifestError::Malformed));
    assert_eq!(Manifest::decode(&[2, 0, 0]), Err(ManifestError::Version(2)));
}

fn manifests() -> impl Strategy<Value = Manifest> {
    let meta = (0_u16..0o1000, prop::option::of((any::<i64>(), 0_u32..1_000_000_000)));
    let node = ("[a-d]{1,2}", 0_u8..4, 0_u64..4_000_000, meta);
    prop::collection::vec((0_usize..4, node), 0..30).prop_map(|nodes| {
        let mut entries: Vec<Entry> = Vec::new();
        for (inside, (name, kind, bytes, (mode, modified))) in nodes {
            let directories: Vec<&Entry> =
                entries.iter().filter(|entry| entry.kind == Kind::Directory).collect();
            let parent = inside.checked_sub(1).and_then(|at| directories.get(at));
            let path = match parent {
                Some(parent) => format!("{}/{name}", parent.path),
                None => name,
            };
            let path = EntryPath::new(path.as_bytes()).expect("a good path");
            let kind = match kind {
                0 => Kind::Directory,
                1 if !path.is_root() => Kind::Symlink { target: b"x/y"[..].into() },
                2 if bytes > 1000 => {
                    let mut holes = Holes::default();
                    assert!(holes.push(bytes / 4, bytes / 4, bytes));
                    assert!(holes.push(bytes - 100, 100, bytes));
                    Kind::File { bytes, holes }
                }
                _ => Kind::File { bytes, holes: Holes::default() },
            };
            let modified = modified.map(|(seconds, nanoseconds)| Modified { seconds, nanoseconds });
            if !entries.iter().any(|entry| entry.path == path) {
                entries.push(Entry { path, mode, modified, kind });
            }
        }
        entries.sort_by(|a, b| a.path.components().cmp(b.path.components()));
        new(entries).expect("a good manifest")
    })
}

proptest! {
    #[test]
    fn a_manifest_is_read_as_it_was_written(manifest in manifests()) {
        let encoded = manifest.encode();
        prop_assert_eq!(Manifest::decode(&encoded), Ok(manifest.clone()));
        for cut in (0..encoded.len()).step_by(7) {
            prop_assert!(Manifest::decode(&encoded[..cut]).is_err());
        }
        prop_assert!(Manifest::decode(&[&encoded[..], &[0]].concat()).is_err());
    }

    #[test]
    fn changed_manifest_is_refused_or_decodes_to_another_one(
        manifest in manifests(), at: prop::sample::Index, change in 1_u8..,
    ) {
        let mut encoded = manifest.encode();
        let at = at.index(encoded.len());
        encoded[at] ^= change;
        if let Ok(other) = Manifest::decode(&encoded) {
            // The id excludes modes and times, and a number can have several encodings.
            prop_assert!(other != manifest || other.encode() != encoded);
        }
    }

    #[test]
    fn no_bytes_make_the_decoder_panic(mut bytes: Vec<u8>, begins: bool) {
        if begins {
            bytes.splice(0..0, [VERSION, 0x80, 0x80, 0x40]);
        }
        if let Ok(manifest) = Manifest::decode(&bytes) {
            prop_assert_eq!(Manifest::decode(&manifest.encode()), Ok(manifest));
        }
    }
}

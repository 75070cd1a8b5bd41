use std::ffi::OsStr;
use std::fs::{self, File, FileTimes, Permissions};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use carom_files::{
    ReceiveError, ReceiveOptions, Receiving, SendError, SendOptions, Sending, Source, State,
};

use crate::kit::{
    Places, Wire, into, names, noise, offered, open, row, send_also_to, send_to, with_receivers,
};
use crate::skipping::lacking;

fn tree(places: &Places) -> PathBuf {
    let root = places.from.join("tree");
    for directory in ["", "empty", "sub", "sub/deep", "locked"] {
        fs::create_dir(root.join(directory)).expect("it is new");
    }
    let write = |name: &str, bytes: &[u8], mode: u32| {
        let path = root.join(name);
        fs::write(&path, bytes).expect("it can be written");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("it is ours");
    };
    write("nothing", b"", 0o644);
    write("program", b"#!/bin/sh\n", 0o755);
    write("private", &noise("private", 70_000), 0o600);
    write("sub/deep/large", &noise("large", 2_500_000), 0o640);
    write("locked/inside", b"x", 0o400);
    write("odd \u{1b}[2J\nname", b"odd", 0o644);
    symlink("sub/deep/large", root.join("short")).expect("it is new");
    symlink("../../program", root.join("sub/deep/up")).expect("it is new");
    symlink("not there", root.join("dangling")).expect("it is new");
    let old = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    let times = FileTimes::new().set_modified(old);
    File::options()
        .write(true)
        .open(root.join("program"))
        .expect("it is there")
        .set_times(times)
        .expect("it is ours");
    fs::set_permissions(root.join("locked"), Permissions::from_mode(0o555)).expect("it is ours");
    File::open(root.join("empty")).expect("it is there").set_times(times).expect("it is ours");
    root
}

fn described(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(path) = waiting.pop() {
        let metadata = fs::symlink_metadata(&path).expect("it is there");
        let name = path.strip_prefix(root).expect("it is inside").to_owned();
        let (mode, time) = (metadata.mode(), (metadata.mtime(), metadata.mtime_nsec()));
        let content = if metadata.is_symlink() {
            format!("{:?}", fs::read_link(&path).expect("it is a symlink"))
        } else if metadata.is_dir() {
            waiting.extend(names(&path).iter().map(|name| path.join(name)));
            String::new()
        } else {
            blake3::hash(&fs::read(&path).expect("it can be read")).to_string()
        };
        found.push(format!("{name:?} {mode:o} {time:?} {content}"));
    }
    found.sort();
    found
}

#[test]
fn a_tree_comes_as_it_is() {
    let places = Places::new();
    let root = tree(&places);
    let summary = send_to(&places, &[&root], Wire::whole(), 2);
    assert!(summary.is_success());
    for receiver in 0..2 {
        assert_eq!(names(&places.folder(receiver)), ["tree"]);
        assert_eq!(described(&places.folder(receiver).join("tree")), described(&root));
    }
}

#[test]
fn a_name_that_is_no_text_comes_as_it_is() {
    let places = Places::new();
    let root = places.from.join("tree");
    fs::create_dir(&root).expect("it is new");
    let name = OsStr::from_bytes(b"\xff\x01\n'");
    fs::write(root.join(name), "odd").expect("it can be written");
    assert!(send_to(&places, &[&root], Wire::whole(), 1).is_success());
    let found = fs::read(places.folder(0).join("tree").join(name));
    assert_eq!(found.expect("it is there"), b"odd");
}

#[test]
fn several_paths_come_side_by_side_under_their_own_names() {
    let places = Places::new();
    let (tree, file) = (tree(&places), places.file("file", 10));
    fs::create_dir(places.from.join("sub")).expect("it is new");
    let twin = places.file("sub/file", 10);
    let link = places.from.join("link");
    symlink("file", &link).expect("it is new");
    send_to(&places, &[&tree, &file, &link], Wire::whole(), 1);
    assert_eq!(names(&places.folder(0)), ["file", "link", "tree"]);
    let linked = fs::symlink_metadata(places.folder(0).join("link")).expect("it is there");
    assert!(linked.is_file(), "a symlink that was named is followed");
    let sources = [file, twin].map(Source::Path).into();
    let twice = Sending::open(sources, with_receivers(1)).map(drop);
    assert!(format!("{twice:?}").contains("SameName"), "{twice:?}");
}

#[test]
fn holes_are_made_again_and_not_sent() {
    let places = Places::new();
    let path = places.from.join("sparse");
    let file = File::create(&path).expect("it is new");
    let (begin, middle) = (noise("begin", 1_300_000), noise("middle", 100_000));
    file.write_all_at(&begin, 0).expect("there is room");
    file.write_all_at(&middle, 50 << 20).expect("there is room");
    file.set_len(200 << 20).expect("there is room");
    let only_hole = places.from.join("hole");
    File::create(&only_hole).expect("it is new").set_len(30 << 20).expect("there is room");
    let (bytes, blocks) = (200 << 20, file.metadata().expect("it is there").blocks());
    if blocks * 512 > 10 << 20 {
        return lacking("the file system of temporary files has no holes");
    }
    let summary = send_to(&places, &[&path, &only_hole], Wire::whole(), 2);
    assert_eq!(summary.total_bytes, bytes + (30 << 20));
    assert!(summary.stream_bytes < 2 << 20, "the holes were not sent: {summary:?}");
    for receiver in 0..2 {
        let path = places.folder(receiver).join("sparse");
        let file = File::open(&path).expect("it is there");
        let metadata = file.metadata().expect("it is there");
        assert_eq!(metadata.len(), bytes);
        assert!(metadata.blocks() * 512 < 10 << 20, "the holes are holes again");
        let mut found = vec![1; begin.len() + 5000];
        file.read_exact_at(&mut found, 0).expect("it is as long");
        assert_eq!(found, [&begin[..], &[0; 5000]].concat());
        let mut found = vec![1; middle.len() + 10_000];
        file.read_exact_at(&mut found, (50 << 20) - 5000).expect("it is as long");
        assert_eq!(found, [&[0; 5000], &middle[..], &[0; 5000]].concat());
        let hole = fs::metadata(places.folder(receiver).join("hole")).expect("it is there");
        assert_eq!((hole.len(), hole.blocks() < 100), (30 << 20, true));
    }
}

#[test]
fn the_same_content_under_the_same_names_is_the_same_transfer() {
    let places = Places::new();
    let file = places.file("data", 3_000_000);
    let id = || open(&[&file], with_receivers(1)).offer().id;
    let first = id();
    fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("it is ours");
    places.file("data", 3_000_000);
    assert_eq!(id(), first, "the id excludes modes and times");
    fs::write(&file, noise("other", 3_000_000)).expect("it can be written");
    assert_ne!(id(), first);
}

#[test]
fn links_out_of_the_tree_and_special_files_are_not_sent() {
    let places = Places::new();
    for (number, target) in ["/etc/passwd", "../outside", "sub/../../x"].iter().enumerate() {
        let root = places.from.join(number.to_string());
        fs::create_dir(&root).expect("it is new");
        symlink(target, root.join("link")).expect("it is new");
        let opened = Sending::open(vec![Source::Path(root)], with_receivers(1)).map(drop);
        let error = opened.expect_err("it leads out").to_string();
        assert!(error.contains("link"), "the error names the link: {error}");
    }
    for path in ["/dev/null", "/", "/no/such/file"] {
        let opened = Sending::open(vec![Source::Path(path.into())], with_receivers(1)).map(drop);
        assert!(matches!(opened, Err(SendError::Source(_))), "{path}: {opened:?}");
    }
}

#[test]
fn existing_target_is_an_error_before_anything_is_received() {
    let (places, sending) = offered(2 << 20, with_receivers(1));
    fs::create_dir(places.folder(1)).expect("it is new");
    fs::write(places.folder(1).join("data"), "mine").expect("it can be written");
    let started = Receiving::start(sending.offer(), into(&places, 1)).map(drop);
    assert_eq!(started, Err(ReceiveError::Exists("data".into())));
    assert_eq!(names(&places.folder(1)), ["data"], "nothing is left beside it");
    let summary = send_also_to(sending, into(&places, 0));
    assert!(!summary.is_success());
    let refused = row(&summary, "receiver 1");
    assert_eq!(refused.state, State::Failed("'data' already exists".into()));
    assert_eq!(row(&summary, "receiver 0").state, State::Finished);
    assert_eq!(fs::read(places.folder(1).join("data")).expect("it is there"), b"mine");
}

#[test]
fn with_overwrite_files_are_replaced_and_directories_merged() {
    let places = Places::new();
    let root = tree(&places);
    let old = places.folder(0).join("tree");
    fs::create_dir_all(old.join("sub")).expect("it is new");
    for name in ["program", "sub/mine", "mine", "short"] {
        fs::write(old.join(name), "old").expect("it can be written");
    }
    let sending = open(&[&root], with_receivers(1));
    let options = ReceiveOptions { overwrite: true, ..into(&places, 0) };
    assert!(send_also_to(sending, options).is_success());
    for name in ["sub/mine", "mine"] {
        let kept = fs::read(old.join(name)).expect("what is not sent stays");
        assert_eq!(kept, b"old");
        fs::remove_file(old.join(name)).expect("it is there");
    }
    // The removed files are visible only in the modification times of their directories.
    let without_times = |root: &Path| {
        let (directories, rest): (Vec<_>, Vec<_>) =
            described(root).into_iter().partition(|line| line.contains(" 40"));
        (directories.len(), rest)
    };
    assert_eq!(without_times(&old), without_times(&root));
    assert_eq!(names(&places.folder(0)), ["tree"], "nothing is left beside it");
}

#[test]
fn overwrite_replaces_no_directory_by_a_file_or_vice_versa() {
    let places = Places::new();
    let root = tree(&places);
    let sending = open(&[&root], with_receivers(1));
    let start = |receiver| {
        let options = ReceiveOptions { overwrite: true, ..into(&places, receiver) };
        Receiving::start(sending.offer(), options).map(drop)
    };
    fs::create_dir_all(places.folder(0).join("tree/program")).expect("it is new");
    let path = String::from("tree/program");
    assert_eq!(start(0), Err(ReceiveError::InTheWay { path, is: "a directory" }));
    fs::create_dir_all(places.folder(1)).expect("it is new");
    fs::write(places.folder(1).join("tree"), "mine").expect("it can be written");
    let path = String::from("tree");
    assert_eq!(start(1), Err(ReceiveError::InTheWay { path, is: "not a directory" }));
}

#[test]
fn no_symlink_of_the_receivers_is_followed() {
    let places = Places::new();
    let root = tree(&places);
    let outside = places.from.join("outside");
    fs::create_dir(&outside).expect("it is new");
    fs::create_dir_all(places.folder(0).join("tree")).expect("it is new");
    symlink(&outside, places.folder(0).join("tree/sub")).expect("it is new");
    let sending = open(&[&root], with_receivers(1));
    let options = ReceiveOptions { overwrite: true, ..into(&places, 0) };
    let started = Receiving::start(sending.offer(), options).map(drop);
    let path = String::from("tree/sub");
    assert_eq!(started, Err(ReceiveError::InTheWay { path, is: "not a directory" }));
    assert_eq!(names(&outside), [""; 0]);
}

#[test]
fn unsendable_entries_are_named_and_skipped_only_on_request() {
    let places = Places::new();
    let root = tree(&places);
    symlink("/etc/passwd", root.join("absolute")).expect("it is new");
    symlink("../../outside", root.join("sub/leaving")).expect("it is new");
    let _socket = std::os::unix::net::UnixListener::bind(root.join("socket")).expect("it is new");
    let mode = |name: &str, mode| {
        fs::set_permissions(root.join(name), Permissions::from_mode(mode)).expect("it is ours");
    };
    mode("program", 0o4755);
    let sources = || vec![Source::Path(root.clone())];
    let Err(refused) = Sending::open(sources(), with_receivers(1)) else { panic!("it is sent") };
    let told = refused.to_string();
    for name in ["absolute", "sub/leaving", "socket"] {
        assert!(told.contains(&format!("/tree/{name} (")), "{told}");
    }
    let options = SendOptions { skip_unsendable: true, ..with_receivers(1) };
    let sending = Sending::open(sources(), options).expect("it can be sent");
    let findings = sending.findings().clone();
    assert_eq!((findings.unsendable_count, findings.special_modes_count), (3, 1));
    assert!(findings.special_modes[0].ends_with("/tree/program"), "{findings:?}");
    assert!(send_also_to(sending, into(&places, 0)).is_success());
    for name in ["absolute", "sub/leaving", "socket"] {
        fs::remove_file(root.join(name)).expect("it is there");
    }
    mode("program", 0o755);
    let without_times = |root: &Path| -> Vec<String> {
        described(root).into_iter().filter(|line| !line.contains(" 40")).collect()
    };
    assert_eq!(without_times(&places.folder(0).join("tree")), without_times(&root));
}

#[test]
fn several_paths_are_offered_as_such() {
    let places = Places::new();
    let (a, b) = (places.file("a", 10), places.file("b", 10));
    assert_eq!(open(&[&a, &b], with_receivers(1)).offer().name, "a and 1 more");
    assert_eq!(open(&[&b], with_receivers(1)).offer().name, "b");
}

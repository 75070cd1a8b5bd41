use std::fs;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use carom_files::{ReceiveError, ReceiveOptions, SendError, SourceError, Summary};

use crate::kit::{
    Places, Wire, assert_received, finish, into, names, offered, open, receive, row, run, send_to,
    with_receivers,
};

const BYTES: usize = 6 << 20;

fn sent(wire: Wire, receivers: usize) -> Summary {
    let places = Places::new();
    let file = places.file("data", BYTES);
    let summary = send_to(&places, &[&file], wire, receivers);
    assert!(summary.is_success(), "{summary:?}");
    (0..receivers).for_each(|at| assert_received(&places, at, BYTES));
    summary
}

fn drawn(listener: usize, number: u64) -> u8 {
    blake3::hash(format!("{listener} {number}").as_bytes()).as_bytes()[0]
}

#[test]
fn losses_of_the_stream_are_fetched_from_other_receivers() {
    // Each receiver loses one block in 64, so nearly every piece is complete at some receiver.
    let wire = Wire::with(
        |listener, number, block| {
            if drawn(listener, number) < 4 { vec![] } else { vec![block.clone()] }
        },
    );
    let summary = sent(wire, 4);
    let from_peers: u64 = summary.receivers.iter().map(|row| row.peer_bytes).sum();
    assert!(from_peers > 0, "{summary:?}");
}

#[test]
fn losses_of_all_are_fetched_from_the_sender_and_shared() {
    let wire =
        Wire::with(|_, number, block| if number % 36 == 20 { vec![] } else { vec![block.clone()] });
    let summary = sent(wire, 6);
    assert!(summary.sender_bytes > 0, "{summary:?}");
}

#[test]
fn nothing_by_the_stream_at_all_is_the_same_only_slower() {
    let summary = sent(Wire::with(|_, _, _| vec![]), 3);
    for row in &summary.receivers {
        assert_eq!((row.stream_bytes, row.peer_bytes + row.sender_bytes), (0, BYTES as u64));
    }
}

#[test]
fn blocks_that_come_twice_or_in_another_order_change_nothing() {
    let late: Mutex<Vec<(usize, Bytes)>> = Mutex::new(Vec::new());
    let wire = Wire::with(move |listener, number, block| {
        let mut late = late.lock().expect("no panic");
        let mut now = Vec::new();
        if number % 7 == 0 {
            late.push((listener, block.clone()));
        } else {
            now.push(block.clone());
        }
        if number % 5 == 0 {
            now.extend(now.clone());
        }
        if number % 12 == 11 || number + 3 > (BYTES / 59_000) as u64 {
            now.extend(late.extract_if(.., |(to, _)| *to == listener).map(|(_, block)| block));
        }
        now
    });
    sent(wire, 2);
}

#[test]
fn piece_with_a_wrong_block_is_counted_and_fetched_again() {
    let wire = Wire::with(|listener, number, block| {
        let mut bytes = block.to_vec();
        if listener == 0 && number % 18 == 9 {
            let last = bytes.len() - 1;
            bytes[last] ^= 1;
        }
        vec![bytes.into()]
    });
    let summary = sent(wire, 2);
    let struck = row(&summary, "receiver 0");
    assert!(struck.wrong_pieces >= 5, "{struck:?}");
    assert_eq!(struck.peer_bytes, struck.wrong_pieces << 20, "{struck:?}");
    assert_eq!((row(&summary, "receiver 1").wrong_pieces, summary.sender_bytes), (0, 0));
}

#[test]
fn nonsense_in_the_stream_is_counted_and_harmless() {
    let (places, sending) = offered(BYTES, with_receivers(1));
    let wire = Wire::with(|_, number, block| {
        let mut bent = block.to_vec();
        // These offsets change, in turn, the piece, the offset, the transfer and the format.
        let at = [20, 24, 4, 0][number as usize % 4];
        bent[at] ^= 0x80;
        vec![bent.into(), block.slice(..block.len().min(20)), Bytes::new(), block.clone()]
    });
    let receiving = receive(sending.offer(), &wire.listeners, into(&places, 0));
    assert!(finish(sending, wire).is_success());
    let received = receiving.wait().expect("it is received");
    assert!(received.blocks_foreign > 300, "{received:?}");
    assert_eq!(received.stream_bytes, BYTES as u64);
    assert_received(&places, 0, BYTES);
}

#[test]
fn incomplete_pieces_beyond_the_bound_are_counted_and_fetched() {
    let (places, sending) = offered(BYTES, with_receivers(2));
    // The last block of each piece arrives after all other blocks.
    let late: Mutex<Vec<Bytes>> = Mutex::new(Vec::new());
    let wire = Wire::with(move |listener, number, block| {
        let mut late = late.lock().expect("no panic");
        let is_last = block.len() < 60_000;
        if listener == 1 {
            return vec![block.clone()];
        }
        if is_last {
            late.push(block.clone());
        }
        let now = if is_last { vec![] } else { vec![block.clone()] };
        if late.len() == BYTES >> 20 && number > 0 { late.drain(..).collect() } else { now }
    });
    let options = ReceiveOptions { assembly_bytes: 3 << 20, ..into(&places, 0) };
    let first = receive(sending.offer(), &wire.listeners, options);
    receive(sending.offer(), &wire.listeners, into(&places, 1));
    let summary = finish(sending, wire);
    assert!(summary.is_success(), "{summary:?}");
    let received = first.wait().expect("it is received");
    assert_eq!((received.stream_bytes, received.peer_bytes), (3 << 20, 3 << 20), "{received:?}");
    // A piece may have been fetched before its last block arrived.
    assert_eq!(received.blocks_dropped + received.blocks_duplicate, 3, "{received:?}");
    (0..2).for_each(|at| assert_received(&places, at, BYTES));
}

#[test]
fn source_changed_in_mid_transfer_ends_it_and_keeps_nothing() {
    let (places, sending) = offered(BYTES, with_receivers(2));
    let file = places.from.join("data");
    let changed = fs::File::options().write(true).open(file).expect("it is there");
    let change = move || changed.write_all_at(b"!", 5 << 20).expect("there is room");
    let wire = Wire::whole().at(20, change);
    let receiving = [0, 1].map(|at| receive(sending.offer(), &wire.listeners, into(&places, at)));
    let ran = run(sending, wire).join().expect("no panic");
    let Err(SendError::Source(SourceError::Changed(path))) = ran else { panic!("{ran:?}") };
    assert_eq!(path, "data");
    for (at, receiving) in receiving.iter().enumerate() {
        let why = String::from("'data' has changed since the transfer began");
        assert_eq!(receiving.wait(), Err(ReceiveError::Discarded(why)));
        assert_eq!(names(&places.folder(at)), [""; 0], "nothing is kept");
    }
}

#[test]
fn useless_pieces_are_removed_before_the_end_is_reported() {
    let places = Places::new();
    // Removing this many files takes longer than reporting the end.
    let folder = places.from.join("many");
    fs::create_dir(&folder).expect("it is new");
    (0..3000).for_each(|at| fs::write(folder.join(at.to_string()), "x").expect("it is new"));
    let sending = open(&[&folder], with_receivers(1));
    let change = move || fs::write(folder.join("999"), "y").expect("it is there");
    let wire = Wire::whole().at(20, change);
    let receiving = receive(sending.offer(), &wire.listeners, into(&places, 0));
    let running = run(sending, wire);
    assert!(matches!(receiving.wait(), Err(ReceiveError::Discarded(_))));
    assert_eq!(names(&places.folder(0)), [""; 0]);
    let ran = running.join().expect("no panic");
    assert!(matches!(ran, Err(SendError::Source(SourceError::Changed(_)))), "{ran:?}");
}

#[test]
fn vanished_source_ends_the_transfer_and_data_is_kept() {
    let (places, sending) = offered(BYTES, with_receivers(1));
    let file = places.from.join("data");
    let away = file.with_file_name("elsewhere");
    let (from, to) = (file.clone(), away.clone());
    let wire = Wire::whole().at(40, move || fs::rename(&from, &to).expect("it is there"));
    let listeners = Arc::clone(&wire.listeners);
    let receiving = receive(sending.offer(), &listeners, into(&places, 0));
    let ran = run(sending, wire).join().expect("no panic");
    let Err(SendError::Source(SourceError::Gone(path))) = ran else { panic!("{ran:?}") };
    assert_eq!(path, "data");
    let why = String::from("'data' no longer exists");
    assert_eq!(receiving.wait(), Err(ReceiveError::Aborted(why)));
    drop((receiving, listeners));
    fs::rename(&away, &file).expect("it is there");
    let summary = send_to(&places, &[&file], Wire::whole(), 1);
    assert!(summary.is_success(), "{summary:?}");
    assert!(summary.receivers[0].resumed_bytes > 0, "{summary:?}");
    assert_received(&places, 0, BYTES);
}

#[test]
fn closed_stream_ends_the_transfer_and_data_is_kept() {
    let (places, sending) = offered(BYTES, with_receivers(1));
    let wire = Wire::whole().before(|block| match block {
        40 => Err(carom_files::SinkError("no carrier".into())),
        _ => Ok(()),
    });
    let receiving = receive(sending.offer(), &wire.listeners, into(&places, 0));
    let ran = run(sending, wire).join().expect("no panic");
    assert!(matches!(ran, Err(SendError::Sink(_))), "{ran:?}");
    let why = String::from("the multicast stream is closed: no carrier");
    assert_eq!(receiving.wait(), Err(ReceiveError::Aborted(why)));
    let kept = names(&places.folder(0));
    assert!(kept.len() == 1 && kept[0].starts_with(".carom-"), "{kept:?}");
}

//! Tests in which either side is killed halfway and started again.

use std::collections::BTreeSet;
use std::fs;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use carom_files::{Block, Offer, Receiving, State, Summary};

use crate::kit::{
    self, Listeners, Places, Wire, eventually, finish, into, names, offered, open, receive, row,
    run, with_receivers,
};

const BYTES: usize = 8 << 20;
const BLOCKS: u64 = 18;

fn assert_received(places: &Places, receiver: usize) {
    assert_eq!(names(&places.folder(receiver)), ["data"], "nothing is left beside it");
    kit::assert_received(places, receiver, BYTES);
}

fn noting(listeners: Listeners) -> (Wire, Arc<Mutex<BTreeSet<u32>>>) {
    let sent: Arc<Mutex<BTreeSet<u32>>> = Arc::default();
    let noted = Arc::clone(&sent);
    let noting = Wire::with(move |_, _, block: &Bytes| {
        let block_of = Block::decode(block).expect("the sender sends blocks");
        noted.lock().expect("no panic").insert(block_of.piece);
        vec![block.clone()]
    });
    (noting.heard_by(listeners), sent)
}

fn noted(sent: &Mutex<BTreeSet<u32>>) -> Vec<u32> {
    sent.lock().expect("no panic").iter().copied().collect()
}

/// Runs a sender that is killed at block 4 of piece 5, without notifying the receivers.
fn killed_half_way(places: &Places, receivers: usize) -> (Offer, Listeners, Vec<Arc<Receiving>>) {
    let sending = open(&[&places.file("data", BYTES)], with_receivers(receivers));
    let die = || std::panic::resume_unwind(Box::new("killed"));
    let wire = Wire::whole().at(5 * BLOCKS + 4, die);
    let (offer, listeners) = (sending.offer().clone(), Arc::clone(&wire.listeners));
    let receiving =
        (0..receivers).map(|at| receive(&offer, &listeners, into(places, at))).collect();
    assert!(run(sending, wire).join().is_err(), "it was killed");
    (offer, listeners, receiving)
}

fn send_again(places: &Places, listeners: Listeners, told: &[Arc<Receiving>]) -> Summary {
    let sending = open(&[&places.from.join("data")], with_receivers(2));
    let (wire, sent) = noting(listeners);
    told.iter().for_each(|receiving| receiving.on_offer(sending.offer()));
    let summary = finish(sending, wire);
    assert!(summary.is_success(), "{summary:?}");
    assert_eq!(noted(&sent), [5, 6, 7], "what was verified is not sent again");
    assert_eq!((summary.pieces_skipped, summary.stream_bytes), (5, 3 << 20));
    assert_eq!(summary.sender_bytes, 0);
    summary
}

#[test]
fn killed_sender_resumes_with_running_receivers() {
    let places = Places::new();
    let (_, listeners, receiving) = killed_half_way(&places, 2);
    let summary = send_again(&places, listeners, &receiving);
    for (at, receiving) in receiving.iter().enumerate() {
        receiving.wait().expect("it is received");
        assert_received(&places, at);
        let row = row(&summary, &format!("receiver {at}"));
        assert_eq!((row.resumed_bytes, row.stream_bytes), (5 << 20, 3 << 20), "{row:?}");
    }
}

#[test]
fn killed_sender_resumes_with_killed_receivers() {
    let places = Places::new();
    let (offer, listeners, receiving) = killed_half_way(&places, 2);
    listeners.lock().expect("no panic").clear();
    drop(receiving);
    assert!(names(&places.folder(0)).iter().all(|name| name.starts_with(".carom-")));
    // The new sender has another address, and therefore another offer of the same transfer.
    let sending = open(&[&places.from.join("data")], with_receivers(2));
    assert_eq!(sending.offer().id, offer.id);
    let (wire, sent) = noting(listeners);
    for at in 0..2 {
        receive(sending.offer(), &wire.listeners, into(&places, at));
    }
    let summary = finish(sending, wire);
    assert!(summary.is_success());
    assert_eq!(noted(&sent), [5, 6, 7], "what was verified is not sent again");
    (0..2).for_each(|at| assert_received(&places, at));
}

#[test]
fn killed_receiver_resumes_where_it_stopped() {
    let (places, sending) = offered(BYTES, with_receivers(2));
    let (offer, handle) = (sending.offer().clone(), sending.handle());
    let wire = Wire::whole();
    let (listeners, again) = (Arc::clone(&wire.listeners), into(&places, 0));
    let state = move |name: &str, at: usize| {
        let rows = handle.receivers();
        let row = rows.iter().find(|row| row.name == name).expect("it is known");
        (row.state.clone(), row.pieces as usize >= at)
    };
    let rejoined = offer.clone();
    let wire = wire.before(move |block| {
        if block == 3 * BLOCKS + 4 {
            listeners.lock().expect("no panic")[0] = None;
            eventually("it is gone", || state("receiver 0", 0).0 == State::Gone);
        }
        if block == 6 * BLOCKS + 4 {
            receive(&rejoined, &listeners, again.clone());
            eventually("it is back", || state("receiver 0", 3) == (State::Receiving, true));
        }
        Ok(())
    });
    drop(receive(&offer, &wire.listeners, into(&places, 0)));
    receive(&offer, &wire.listeners, into(&places, 1));
    let summary = finish(sending, wire);
    assert!(summary.is_success(), "{summary:?}");
    assert_eq!(summary.receivers.len(), 2, "it is known again: {summary:?}");
    let back = row(&summary, "receiver 0");
    assert_eq!((back.peer_bytes, summary.sender_bytes), (4 << 20, 0), "{back:?}");
    assert_eq!(back.stream_bytes + back.resumed_bytes, 4 << 20, "{back:?}");
    (0..2).for_each(|at| assert_received(&places, at));
}

#[test]
fn journaled_pieces_lost_by_the_disk_are_sent_again() {
    let places = Places::new();
    let (_, listeners, receiving) = killed_half_way(&places, 1);
    listeners.lock().expect("no panic").clear();
    drop(receiving);
    let stage = places.folder(0).join(&names(&places.folder(0))[0]);
    let data = stage.join("data/0");
    let mut bytes = fs::read(&data).expect("it is there");
    bytes[2 << 20] ^= 1;
    fs::write(&data, bytes).expect("it can be written");
    let journal = stage.join("journal");
    let torn = [&fs::read(&journal).expect("it is there")[..], &[0, 0]].concat();
    fs::write(&journal, torn).expect("it can be written");
    let sending = open(&[&places.from.join("data")], with_receivers(1));
    let (wire, sent) = noting(listeners);
    receive(sending.offer(), &wire.listeners, into(&places, 0));
    assert!(finish(sending, wire).is_success());
    assert_eq!(noted(&sent), [2, 5, 6, 7]);
    assert_received(&places, 0);
}

#[test]
fn transfer_that_all_have_is_finished_without_sending() {
    let (places, sending) = offered(BYTES, with_receivers(1));
    // The receiver obtains all pieces, but cannot give the file its final name, because the name
    // exists.
    let wire = Wire::whole();
    receive(sending.offer(), &wire.listeners, into(&places, 0));
    fs::create_dir(places.folder(0).join("data")).expect("it is new");
    let summary = finish(sending, wire);
    let failed = State::Failed("'data' already exists".into());
    assert_eq!(summary.receivers[0].state, failed, "it came in between");
    fs::remove_dir(places.folder(0).join("data")).expect("it is there");

    let sending = open(&[&places.from.join("data")], with_receivers(1));
    let (wire, sent) = noting(Listeners::default());
    receive(sending.offer(), &wire.listeners, into(&places, 0));
    let summary = finish(sending, wire);
    assert!(summary.is_success());
    assert_eq!((summary.pieces_skipped, summary.receivers[0].resumed_bytes), (8, BYTES as u64));
    assert_eq!(noted(&sent), []);
    assert_received(&places, 0);
}

#[test]
fn receiver_with_the_finished_file_serves_the_others() {
    let (places, sending) = offered(BYTES, with_receivers(2));
    fs::create_dir_all(places.folder(0)).expect("it can be made");
    let sent = places.from.join("data");
    fs::copy(sent, places.folder(0).join("data")).expect("it can be copied");
    let wire = Wire::with(|_, _, _| vec![]);
    let had = receive(sending.offer(), &wire.listeners, into(&places, 0));
    receive(sending.offer(), &wire.listeners, into(&places, 1));
    let summary = finish(sending, wire);
    assert!(summary.is_success(), "{summary:?}");
    assert_eq!(had.wait().map(|received| received.resumed_bytes), Ok(BYTES as u64));
    let other = row(&summary, "receiver 1");
    assert_eq!((other.peer_bytes, summary.sender_bytes), (BYTES as u64, 0));
    assert_eq!(names(&places.folder(0)), ["data"]);
    (0..2).for_each(|at| assert_received(&places, at));
}

#[test]
fn two_do_not_receive_the_same_into_the_same_directory() {
    let (places, sending) = offered(BYTES, with_receivers(1));
    let first = Receiving::start(sending.offer(), into(&places, 0)).expect("it can be received");
    let second = Receiving::start(sending.offer(), into(&places, 0)).map(drop);
    assert_eq!(second, Err(carom_files::ReceiveError::InUse));
    drop(first);
    let third = Receiving::start(sending.offer(), into(&places, 0)).map(drop);
    assert_eq!(third, Ok(()));
}

use std::fs;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use carom_files::{
    Event, Offer, ReceiveError, Receiving, SendError, SendOptions, Sending, Source, StartWhen,
    State, events,
};

use crate::kit::{
    Places, Wire, assert_received, eventually, finish, into, names, noise, offered, receive, row,
    run, send_also_to, send_to, with_receivers,
};

#[test]
fn one_file_comes_to_eight_receivers_and_is_read_and_sent_once() {
    let places = Places::new();
    let file = places.file("data", 5_300_000);
    let summary = send_to(&places, &[&file], Wire::whole(), 8);
    assert!(summary.is_success());
    assert_eq!((summary.pieces, summary.stream_bytes, summary.sender_bytes), (6, 5_300_000, 0));
    assert_eq!(summary.receivers.len(), 8);
    for (receiver, row) in summary.receivers.iter().enumerate() {
        assert_eq!((row.pieces, row.stream_bytes, row.peer_bytes), (6, 5_300_000, 0));
        assert_received(&places, receiver, 5_300_000);
        assert_eq!(names(&places.folder(receiver)), ["data"], "nothing is left beside it");
    }
}

#[test]
fn output_of_a_reader_is_sent_as_a_file() {
    let places = Places::new();
    let text = noise("piped", 1_500_000);
    let reader = Box::new(std::io::Cursor::new(text.clone()));
    let source = Source::Reader { name: "stdin".into(), reader };
    let sending = Sending::open(vec![source], with_receivers(1)).expect("it can be sent");
    let summary = send_also_to(sending, into(&places, 0));
    assert!(summary.is_success());
    assert_eq!(fs::read(places.folder(0).join("stdin")).expect("it is there"), text);
}

#[test]
fn late_joiner_gets_the_rest_by_stream_and_gaps_from_peers() {
    let (places, sending) = offered(8 << 20, with_receivers(2));
    let (offer, handle) = (sending.offer().clone(), sending.handle());
    let (late, joined) = (into(&places, 2), offer.clone());
    let wire = Wire::whole();
    let listeners = Arc::clone(&wire.listeners);
    // The late receiver joins in the middle of the stream, which continues only when it takes part.
    let wire = wire.at(4 * 18, move || {
        receive(&joined, &listeners, late.clone());
        eventually("the late one takes part", || handle.receivers().len() == 3);
    });
    (0..2).for_each(|at| drop(receive(&offer, &wire.listeners, into(&places, at))));
    let summary = finish(sending, wire);
    assert!(summary.is_success(), "{summary:?}");
    let late = row(&summary, "receiver 2");
    assert!(late.stream_bytes >= 3 << 20, "later pieces came from the stream: {late:?}");
    assert!(late.peer_bytes >= 3 << 20, "earlier pieces came from peers: {late:?}");
    assert_eq!(late.stream_bytes + late.peer_bytes, 8 << 20);
    assert_eq!((summary.stream_bytes, summary.sender_bytes), (8 << 20, 0));
    assert_received(&places, 2, 8 << 20);
}

#[test]
fn receiver_after_the_stream_gets_all_from_the_others() {
    let (places, sending) = offered(3 << 20, with_receivers(1));
    let (offer, handle) = (sending.offer().clone(), sending.handle());
    // The first receiver lacks one block until the second has joined, and does not fetch it.
    let kept = Arc::new(Mutex::new(None));
    let keeping = Arc::clone(&kept);
    let wire = Wire::with(move |_, number, block| {
        if number == 3 {
            *keeping.lock().expect("no panic") = Some(block.clone());
        }
        if number == 3 { vec![] } else { vec![block.clone()] }
    });
    let settle = Duration::from_secs(3600);
    let slow = carom_files::ReceiveOptions { settle, ..into(&places, 0) };
    let first = receive(&offer, &wire.listeners, slow);
    let sender = run(sending, wire);
    eventually("the stream is over", || {
        handle.receivers().first().is_some_and(|row| row.pieces == 2)
    });
    let second = Receiving::start(&offer, into(&places, 1)).expect("it can be received");
    eventually("the second has all", || names(&places.folder(1)) == ["data"]);
    first.on_block(kept.lock().expect("no panic").take().expect("it was kept"));
    first.wait().expect("it is received");
    let got = second.wait().expect("it is received");
    // The remaining pieces could come only from the sender.
    assert_eq!((got.stream_bytes, got.peer_bytes, got.sender_bytes), (0, 2 << 20, 1 << 20));
    assert!(sender.join().expect("no panic").expect("it is sent").is_success());
}

#[test]
fn without_receivers_when_the_time_has_passed_there_is_an_error() {
    let start = StartWhen { receivers: None, after: Some(Duration::from_millis(50)) };
    let (_places, sending) = offered(100, SendOptions { start, ..with_receivers(1) });
    let ran = sending.run(&mut Wire::whole());
    assert!(matches!(ran, Err(SendError::NoReceivers)), "{ran:?}");
}

#[test]
fn stream_begins_with_fewer_receivers_after_the_set_time() {
    let start = StartWhen { receivers: Some(5), after: Some(Duration::from_millis(300)) };
    let (places, sending) = offered(100, SendOptions { start, ..with_receivers(1) });
    let summary = send_also_to(sending, into(&places, 0));
    assert!(summary.is_success());
    assert_eq!(summary.receivers.len(), 1);
}

#[test]
fn options_that_cannot_work_are_refused_before_anything_is_read() {
    for wrong in [
        SendOptions { start: StartWhen { receivers: None, after: None }, ..with_receivers(1) },
        SendOptions { start: StartWhen { receivers: Some(0), after: None }, ..with_receivers(1) },
        SendOptions { listen: "0.0.0.0:0".parse().expect("an address"), ..with_receivers(1) },
        SendOptions { fetches_per_peer: 0, ..with_receivers(1) },
        SendOptions { max_receivers: 3, ..with_receivers(4) },
    ] {
        let opened = Sending::open(vec![Source::Path("/no/such/file".into())], wrong);
        assert!(matches!(opened, Err(SendError::Options(_))));
    }
}

#[test]
fn offer_without_its_sender_is_an_error() {
    let (places, sending) = offered(100, with_receivers(1));
    let offer = sending.offer().clone();
    let other = Offer { id: carom_files::TransferId([9; 32]), ..offer.clone() };
    let started = Receiving::start(&other, into(&places, 0)).map(drop);
    assert!(matches!(started, Err(ReceiveError::Refused(_))), "{started:?}");
    drop(sending);
    let started = Receiving::start(&offer, into(&places, 0)).map(drop);
    assert!(matches!(started, Err(ReceiveError::Unreachable(_))), "{started:?}");
    assert!(!places.folder(0).exists());
}

#[test]
fn canceled_transfer_ends_for_all_and_publishes_nothing() {
    let (places, sending) = offered(3 << 20, with_receivers(1));
    let handle = sending.handle();
    let wire = Wire::whole().at(20, move || handle.cancel());
    let receiving = receive(sending.offer(), &wire.listeners, into(&places, 0));
    let ran = run(sending, wire).join().expect("no panic");
    assert!(matches!(ran, Err(SendError::Cancelled)), "{ran:?}");
    assert_eq!(receiving.wait(), Err(ReceiveError::Aborted("the transfer was canceled".into())));
    assert!(!places.folder(0).join("data").exists());
}

#[test]
fn both_sides_report_all_events() {
    let (reporter, sent) = events(1000);
    let (places, sending) = offered(2 << 20, SendOptions { reporter, ..with_receivers(1) });
    let (reporter, received) = events(1000);
    let wire = Wire::whole();
    let options = carom_files::ReceiveOptions { reporter, ..into(&places, 0) };
    let receiving = receive(sending.offer(), &wire.listeners, options);
    let summary = finish(sending, wire);
    receiving.wait().expect("it is received");
    assert_eq!(summary.receivers[0].state, State::Finished);
    let sent: Vec<Event> = sent.try_iter().collect();
    let name = String::from("receiver 0");
    for event in [
        Event::Scanned { bytes: 2 << 20, of: 2 << 20 },
        Event::ReceiverReady { name: name.clone(), has: 0 },
        Event::Began { receivers: 1 },
        Event::Streamed { pieces: 2, of: 2, bytes: 2 << 20 },
        Event::StreamOver,
        Event::ReceiverFinished { name },
    ] {
        assert!(sent.contains(&event), "{event:?} in {sent:?}");
    }
    let received: Vec<Event> = received.try_iter().collect();
    let verified = |bytes| Event::Verified { bytes, of: 2 << 20 };
    let connected = Event::Connected { has: 0, of: 2, bytes: 2 << 20 };
    assert_eq!(received, [connected, verified(1 << 20), verified(2 << 20), Event::Finished]);
}

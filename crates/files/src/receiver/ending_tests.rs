use std::sync::Barrier;

use super::*;
use crate::receiver::final_names::tests::{Sent, assert_whole};

fn shared(sent: &Sent) -> Shared {
    let store = sent.store(false).expect("it can be received");
    let offer = Offer {
        id: store.manifest.id(),
        addresses: Vec::new(),
        name: String::new(),
        total_bytes: 0,
        entries: 0,
    };
    Shared::new(store, ReceiveOptions::new(sent.to()), &offer, 0)
}

#[test]
fn last_piece_racing_with_an_abort_publishes_all_or_nothing() {
    for _ in 0..200 {
        let sent = Sent::new();
        let shared = shared(&sent);
        let pieces = shared.manifest().pieces();
        let piece = |number| sent.content.read(number).expect("it is there");
        (1..pieces).for_each(|number| shared.accept(Way::Stream, number, &piece(number)));
        let begin = Barrier::new(3);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                begin.wait();
                shared.accept(Way::Stream, 0, &piece(0));
            });
            scope.spawn(|| {
                begin.wait();
                shared.aborted("it has changed".to_owned(), true);
            });
            begin.wait();
            shared.finish();
        });
        let mut life = shared.life();
        life.close();
        match life.ended.clone().expect("it has ended") {
            Ok(()) => assert_whole(&sent.to()),
            Err(error) => {
                assert_eq!(error, ReceiveError::Discarded("it has changed".to_owned()));
                let left = std::fs::read_dir(sent.to()).expect("it is there").count();
                assert_eq!(left, 0, "nothing is kept");
            }
        }
    }
}

#[test]
fn piece_in_flight_does_not_publish_an_aborted_transfer() {
    let sent = Sent::new();
    let shared = shared(&sent);
    for piece in 0..shared.manifest().pieces() {
        let bytes = sent.content.read(piece).expect("it is there");
        assert_eq!(shared.store.write(piece, &bytes), Ok(true));
    }
    shared.aborted("it is cancelled".to_owned(), false);
    for piece in 0..shared.manifest().pieces() {
        shared.life().accept(Way::Stream, piece, 1);
    }
    shared.finish();
    let left: Vec<_> = std::fs::read_dir(sent.to()).expect("it is there").flatten().collect();
    assert_eq!(left.len(), 1, "it is kept beside the target, and has no name: {left:?}");
    assert_eq!(left[0].path(), sent.stage());
}

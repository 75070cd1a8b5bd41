//! Tests senders, receivers and peers that send false data.

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use carom_files::frame::{self, FromReceiver, FromSender, Opening, PROTOCOL_VERSION, PieceAnswer};
use carom_files::{
    Block, MAX_FRAME_BYTES, Manifest, Offer, PieceSet, ReceiveError, ReceiveOptions, Receiving,
    SendOptions, Sending, State, TransferId,
};

use crate::kit::{
    Places, Wire, assert_received, eventually, failure, finish, into, names, offered, receive, row,
    run, send_also_to, with_receivers,
};

const BYTES: usize = 6 << 20;

fn hurried(patience: u64, receivers: usize) -> (Places, Sending) {
    let patience = Duration::from_secs(patience);
    offered(BYTES, SendOptions { patience, ..with_receivers(receivers) })
}

/// A receiver that claims to have all pieces and serves zeros.
struct Liar {
    stream: TcpStream,
    asked: Arc<AtomicUsize>,
}

impl Liar {
    fn join(offer: &Offer) -> Self {
        let pieces = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let piece_port = pieces.local_addr().expect("it listens").port();
        let (stream, manifest) = greet(offer, "liar", 3);
        let mut all = PieceSet::none_of(manifest.pieces());
        for piece in 0..manifest.pieces() {
            all.insert(piece);
        }
        let ready = FromReceiver::Ready { key: [7; 16], piece_port, have: all.to_bytes() };
        frame::write(&mut &stream, &ready).expect("the sender reads");
        let asked = Arc::new(AtomicUsize::new(0));
        let (manifest, counted) = (Arc::new(manifest), Arc::clone(&asked));
        std::thread::spawn(move || {
            for peer in pieces.incoming().map_while(Result::ok) {
                let (manifest, counted) = (Arc::clone(&manifest), Arc::clone(&counted));
                std::thread::spawn(move || give_zeros(peer, &manifest, &counted));
            }
        });
        stay_alive(&stream);
        Self { stream, asked }
    }
}

fn give_zeros(mut peer: TcpStream, manifest: &Manifest, counted: &AtomicUsize) {
    while let Ok(Opening::Ask { piece, .. }) = frame::read(&mut peer, MAX_FRAME_BYTES) {
        counted.fetch_add(1, Ordering::Relaxed);
        let bytes = manifest.place(piece).expect("there is such a piece").bytes;
        frame::write(&mut peer, &PieceAnswer::Piece { bytes }).expect("it reads");
        peer.write_all(&vec![0; bytes as usize]).expect("it reads");
    }
}

fn greet(offer: &Offer, name: &str, place: u8) -> (TcpStream, Manifest) {
    let stream = TcpStream::connect(offer.addresses[0]).expect("the sender listens");
    let hello = Opening::Hello {
        version: PROTOCOL_VERSION,
        id: offer.id,
        name: name.into(),
        place: [place; 16],
        knows_manifest: false,
    };
    frame::write(&mut &stream, &hello).expect("the sender reads");
    let manifest = read_manifest(&stream);
    (stream, manifest)
}

fn stay_alive(stream: &TcpStream) {
    let stream = stream.try_clone().expect("it is open");
    std::thread::spawn(move || {
        while frame::write(&mut &stream, &FromReceiver::Alive).is_ok() {
            std::thread::sleep(Duration::from_millis(100));
        }
    });
}

fn read_manifest(mut stream: &TcpStream) -> Manifest {
    match frame::read(&mut stream, MAX_FRAME_BYTES).expect("the sender greets") {
        FromSender::Welcome { manifest_bytes } => {
            let bytes = frame::read_bytes(&mut stream, manifest_bytes).expect("it sends all");
            Manifest::decode(&bytes).expect("it is whole")
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn peer_with_wrong_bytes_is_not_asked_again_and_does_no_harm() {
    let (places, sending) = offered(BYTES, with_receivers(3));
    let offer = sending.offer().clone();
    // Two receivers without a stream must fetch all pieces, and the liar claims to have them.
    let wire = Wire::with(|_, _, _| vec![]);
    let liar = Liar::join(&offer);
    let receivers = [0, 1].map(|at| receive(&offer, &wire.listeners, into(&places, at)));
    let sender = run(sending, wire);
    for (at, receiving) in receivers.iter().enumerate() {
        eventually("it is received", || receiving.progress().0 == 6);
        eventually("it has its name", || names(&places.folder(at)) == ["data"]);
        assert_received(&places, at, BYTES);
    }
    frame::write(&mut &liar.stream, &FromReceiver::Finished).expect("the sender reads");
    let summary = sender.join().expect("no panic").expect("it is sent");
    let wrong: u64 = summary.receivers.iter().map(|row| row.wrong_pieces).sum();
    assert!(wrong >= 2, "{summary:?}");
    // The liar receives only the fetches assigned before its first wrong piece was detected.
    assert!(liar.asked.load(Ordering::Relaxed) <= 2 * 4, "{summary:?}");
    for at in 0..2 {
        assert_eq!(row(&summary, &format!("receiver {at}")).state, State::Finished);
    }
}

fn hostile(say: impl Fn(TcpStream) + Send + 'static) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it listens");
    let thread = std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("a receiver connects");
        let _: Opening = frame::read(&mut &stream, MAX_FRAME_BYTES).expect("it says hello");
        say(stream);
    });
    (address, thread)
}

fn offer_of(id: TransferId, address: SocketAddr) -> Offer {
    Offer { id, addresses: vec![address], name: "x".into(), total_bytes: 0, entries: 1 }
}

fn refused(places: &Places, manifest: Vec<u8>) -> ReceiveError {
    let (address, thread) = hostile(move |mut stream| {
        let manifest_bytes = manifest.len() as u32;
        frame::write(&mut stream, &FromSender::Welcome { manifest_bytes }).expect("it reads");
        stream.write_all(&manifest).expect("it reads");
        let answer = frame::read(&mut stream, MAX_FRAME_BYTES).expect("it answers");
        assert!(matches!(answer, FromReceiver::Failed { .. }), "the sender is told: {answer:?}");
    });
    let started = Receiving::start(&offer_of(TransferId([1; 32]), address), into(places, 0));
    thread.join().expect("it is answered");
    started.map(drop).expect_err("it is refused")
}

fn unchecked(entries: &[(&[u8], Option<&[u8]>)]) -> Vec<u8> {
    let mut bytes = vec![1];
    let mut append = |more: Vec<u8>| bytes.extend(more);
    append(postcard::to_stdvec(&(1_u32 << 20, entries.len() as u32, 0_u32)).expect("it fits"));
    for (path, target) in entries {
        append(postcard::to_stdvec(&(path, 0o644_u16, None::<()>)).expect("it fits"));
        append(match target {
            Some(target) => postcard::to_stdvec(&(2_u8, target)).expect("it fits"),
            None => postcard::to_stdvec(&(1_u8, 0_u64, 0_u32)).expect("it fits"),
        });
    }
    bytes
}

#[test]
fn a_sender_cannot_write_outside_the_directory() {
    let places = Places::new();
    for entries in [
        &[(&b"/etc/cron.d/x"[..], None)][..],
        &[(b"../x", None)],
        &[(b"..", None)],
        &[(b"a/../../x", None)],
        &[(b"a\0b", None)],
        &[(b"link", Some(&b"/etc"[..]))],
        &[(b"link", Some(b"..")), (b"link/x", None)],
        &[(b".carom-0101010101010101/journal", None)],
        &[(b"", None)],
    ] {
        let error = refused(&places, unchecked(entries));
        assert!(matches!(error, ReceiveError::Manifest(_)), "{entries:?}: {error:?}");
        assert!(!places.folder(0).exists());
    }
    let in_no_directory = refused(&places, unchecked(&[(b"a", None), (b"a/b", None)]));
    assert!(format!("{in_no_directory:?}").contains("Misplaced"), "{in_no_directory:?}");
    let twice = refused(&places, unchecked(&[(b"a", None), (b"a", None)]));
    assert!(format!("{twice:?}").contains("Misplaced"), "{twice:?}");
    // This manifest is valid, but it is not the one that the offer names.
    let other = refused(&places, unchecked(&[(b"a", None)]));
    assert_eq!(other, ReceiveError::OtherManifest);
}

#[test]
fn a_sender_that_promises_a_manifest_without_end_is_refused() {
    let places = Places::new();
    let (address, thread) = hostile(|mut stream| {
        let welcome = FromSender::Welcome { manifest_bytes: u32::MAX };
        frame::write(&mut stream, &welcome).expect("it reads");
    });
    let started = Receiving::start(&offer_of(TransferId([1; 32]), address), into(&places, 0));
    assert!(matches!(started.map(drop), Err(ReceiveError::Manifest(_))));
    thread.join().expect("no panic");
}

#[test]
fn blocks_of_a_forger_are_never_written_under_a_final_name() {
    let (places, sending) = offered(BYTES, with_receivers(1));
    let id = sending.offer().id;
    // A forged block for the same place precedes each genuine block.
    let wire = Wire::with(move |_, _, block| {
        let place = Block::decode(block).expect("the sender sends blocks");
        let forged = vec![0; place.data.len()];
        vec![Block::encode(&id, place.piece, place.offset, &forged), block.clone()]
    });
    let receiving = receive(sending.offer(), &wire.listeners, into(&places, 0));
    let summary = finish(sending, wire);
    assert!(summary.is_success(), "{summary:?}");
    let received = receiving.wait().expect("it is received");
    assert_eq!((received.wrong_pieces, received.sender_bytes), (6, BYTES as u64));
    assert_received(&places, 0, BYTES);
}

#[test]
fn connections_of_strangers_delay_no_transfer() {
    let (places, sending) = offered(BYTES, with_receivers(1));
    let address = sending.offer().addresses[0];
    let mut strangers: Vec<TcpStream> =
        (0..20).map(|_| TcpStream::connect(address).expect("it listens")).collect();
    for stranger in &mut strangers[..10] {
        stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("it is taken");
    }
    let options = ReceiveOptions { name: "a\u{1b}[2J".into(), ..into(&places, 0) };
    let summary = send_also_to(sending, options);
    assert!(summary.is_success());
    assert_eq!(summary.receivers[0].name, "a\u{fffd}[2J", "no name moves the cursor");
}

fn report_nothing(mut stream: &TcpStream, manifest: &Manifest) {
    let have = PieceSet::none_of(manifest.pieces()).to_bytes();
    let ready = FromReceiver::Ready { key: [8; 16], piece_port: 1, have };
    frame::write(&mut stream, &ready).expect("the sender reads");
}

/// A receiver that reports no pieces and then sends only keepalives.
struct Idle(TcpStream);

impl Idle {
    fn join(offer: &Offer) -> Self {
        let (stream, manifest) = greet(offer, "idle", 3);
        report_nothing(&stream, &manifest);
        stay_alive(&stream);
        Self(stream)
    }
}

#[test]
fn receiver_without_progress_fails_after_the_patience() {
    let (places, sending) = hurried(3, 2);
    let idle = Idle::join(sending.offer());
    let summary = send_also_to(sending, into(&places, 0));
    assert_eq!(row(&summary, "receiver 0").state, State::Finished);
    let named: Vec<&str> = summary.not_finished().map(|row| row.name.as_str()).collect();
    assert_eq!(named, ["idle"]);
    let reason = failure(&summary, "idle");
    assert!(reason.starts_with("no progress"), "{reason}");
    let told = std::iter::from_fn(|| frame::read(&mut &idle.0, MAX_FRAME_BYTES).ok());
    let refused = FromSender::Refused { reason: reason.to_owned() };
    assert!(told.collect::<Vec<FromSender>>().contains(&refused), "it is told");
}

#[test]
fn complete_receiver_that_never_finishes_is_given_up() {
    let (places, sending) = hurried(3, 2);
    let _liar = Liar::join(sending.offer());
    let summary = send_also_to(sending, into(&places, 0));
    assert_eq!(row(&summary, "receiver 0").state, State::Finished);
    let reason = failure(&summary, "liar");
    assert!(reason.starts_with("all pieces received"), "{reason}");
}

#[test]
fn receiver_that_never_becomes_ready_fails_by_name() {
    let (places, sending) = hurried(3, 1);
    let (reading, _) = greet(sending.offer(), "reading", 4);
    stay_alive(&reading);
    // This receiver sends no keepalives, but a longer frame byte by byte.
    let (slow, _) = greet(sending.offer(), "slow", 5);
    (&slow).write_all(&MAX_FRAME_BYTES.to_be_bytes()).expect("the sender reads");
    std::thread::spawn(move || {
        while (&slow).write_all(&[0]).is_ok() {
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    // This receiver sends nothing.
    let (_silent, _) = greet(sending.offer(), "silent", 6);
    let summary = send_also_to(sending, into(&places, 0));
    assert_eq!(row(&summary, "receiver 0").state, State::Finished);
    for name in ["reading", "slow", "silent"] {
        let reason = failure(&summary, name);
        assert!(reason.starts_with("not ready within"), "{reason}");
    }
}

#[test]
fn receiver_lost_before_it_was_ready_is_named() {
    let (places, sending) = hurried(1, 1);
    let handle = sending.handle();
    drop(greet(sending.offer(), "killed", 4));
    eventually("it is gone", || handle.receivers().iter().any(|row| row.state == State::Gone));
    let summary = send_also_to(sending, into(&places, 0));
    assert!(!summary.is_success());
    assert_eq!(row(&summary, "receiver 0").state, State::Finished);
    assert_eq!(row(&summary, "killed").state, State::Gone);
}

#[test]
fn receiver_gone_at_the_end_is_named() {
    let (places, sending) = hurried(3, 2);
    let idle = Idle::join(sending.offer());
    let handle = sending.handle();
    let wire = Wire::whole().at(20, move || {
        idle.0.shutdown(std::net::Shutdown::Both).expect("it is open");
        eventually("it is gone", || handle.receivers().iter().any(|row| row.state == State::Gone));
    });
    receive(sending.offer(), &wire.listeners, into(&places, 0));
    let summary = finish(sending, wire);
    assert!(!summary.is_success());
    assert_eq!(row(&summary, "idle").state, State::Gone);
    assert_eq!(row(&summary, "receiver 0").state, State::Finished);
}

#[test]
fn complete_receiver_does_not_wait_for_a_silent_one() {
    let (places, sending) = offered(BYTES, with_receivers(2));
    let (offer, handle) = (sending.offer().clone(), sending.handle());
    let wire = Wire::whole();
    let (silent, manifest) = greet(&offer, "silent", 3);
    report_nothing(&silent, &manifest);
    let receiving = receive(&offer, &wire.listeners, into(&places, 0));
    let sender = run(sending, wire);
    let received = receiving.wait().expect("it is received");
    assert!(received.sender_knows);
    assert!(!sender.is_finished(), "the sender is patient with the silent one");
    handle.cancel();
    sender.join().expect("no panic").expect_err("it was cancelled");
    drop(silent);
}

use std::collections::BTreeMap;
use std::net::{IpAddr, TcpListener};
use std::sync::mpsc::{Receiver, sync_channel};

use super::*;
use crate::holes::Holes;
use crate::limits::MAX_RANGES;
use crate::manifest::{Entry, Kind};
use crate::names::EntryPath;
use crate::sender::ranges::is_in_order;
use crate::sender::tracker::assign;

const PIECES: u32 = 40;

fn manifest() -> Manifest {
    let bytes = u64::from(PIECES) << 20;
    let kind = Kind::File { bytes, holes: Holes::default() };
    let path = EntryPath::new(b"data").expect("a good path");
    let entry = Entry { path, mode: 0, modified: None, kind };
    Manifest::new(1 << 20, vec![entry], vec![[0; 32]; PIECES as usize]).expect("a good one")
}

fn who(number: usize, host: IpAddr) -> Who {
    Who { name: "host".to_owned(), place: [100 + number as u8; 16], host }
}

struct Told {
    roster: Roster,
    manifest: Manifest,
    frames: Vec<Receiver<FromSender>>,
    listener: TcpListener,
}

impl Told {
    /// Creates receivers after the end of the stream. Receiver i has the first `have[i]` pieces.
    fn new(have: &[u32]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let (roster, frames) = (Roster::new(PIECES), Vec::new());
        let mut told = Self { roster, manifest: manifest(), frames, listener };
        for (number, have) in have.iter().enumerate() {
            told.ready(number, *have);
        }
        told
    }

    fn prepare(&mut self, link: u64, number: usize) {
        let host = self.listener.local_addr().expect("it listens").ip();
        self.roster.prepare(link, who(number, host));
    }

    fn fail_early(&mut self) {
        self.prepare(50, 0);
        let failed = self.roster.failed_early(50, "exists");
        assert_eq!(failed.as_deref(), Some("host"));
    }

    fn ready(&mut self, number: usize, have: u32) -> Index {
        let address = self.listener.local_addr().expect("it listens");
        let stream = Arc::new(TcpStream::connect(address).expect("it listens"));
        let (frames, told) = sync_channel(100);
        self.frames.push(told);
        let mut set = PieceSet::none_of(PIECES);
        for piece in 0..have {
            set.insert(piece);
        }
        let ready = Ready {
            who: who(number, address.ip()),
            key: [1 + number as u8; 16],
            piece_port: 1000 + number as u16,
            have: set,
            link: Link { number: self.frames.len() as u64, frames, stream },
        };
        self.roster.ready(ready, &self.manifest, PIECES)
    }

    fn assign(&mut self, per_peer: usize, from_sender: usize) {
        assign(&mut self.roster, &self.manifest, per_peer, from_sender);
    }

    fn fetches(&self) -> (BTreeMap<u32, usize>, Vec<(Index, u32)>) {
        let (mut sources, mut fetches) = (BTreeMap::new(), Vec::new());
        for (index, told) in self.frames.iter().enumerate() {
            for frame in told.try_iter() {
                if let FromSender::Fetch { piece, source, .. } = frame {
                    *sources.entry(source).or_default() += 1;
                    fetches.push((index, piece));
                }
            }
        }
        (sources, fetches)
    }
}

#[test]
fn the_load_is_spread_and_bounded() {
    let mut told = Told::new(&[PIECES, PIECES, PIECES, PIECES, 0, 0, 0, 0]);
    told.assign(4, 8);
    let (sources, fetches) = told.fetches();
    assert_eq!(sources, BTreeMap::from([(0, 4), (1, 4), (2, 4), (3, 4)]));
    told.assign(4, 8);
    assert_eq!(told.fetches().1, [], "all are busy");
    // A completed fetch makes room for another one.
    let (index, piece) = fetches[0];
    told.roster.has(index, Way::Peer, &vec![(piece, piece)], &told.manifest);
    told.assign(4, 8);
    let (sources, _) = told.fetches();
    assert_eq!(sources.range(..4).map(|(_, times)| times).sum::<usize>(), 1);
}

#[test]
fn receiver_gets_a_bounded_number_of_fetches_without_repeats() {
    let mut told = Told::new(&[PIECES, 0]);
    told.assign(100, 8);
    told.assign(100, 8);
    let (_, mut fetches) = told.fetches();
    assert_eq!(fetches.len(), crate::limits::FETCHES_PER_RECEIVER);
    fetches.sort_unstable();
    fetches.dedup();
    assert_eq!(fetches.len(), crate::limits::FETCHES_PER_RECEIVER);
}

#[test]
fn sender_serves_only_pieces_that_no_receiver_has() {
    let mut told = Told::new(&[20, 0]);
    told.assign(1, 100);
    let (sources, fetches) = told.fetches();
    // The other pieces of the peer wait for their turn.
    let mut of_the_second: Vec<u32> =
        fetches.iter().filter(|(index, _)| *index == 1).map(|(_, piece)| *piece).collect();
    of_the_second.sort_unstable();
    let (by_peer, by_sender) =
        of_the_second.split_at(of_the_second.partition_point(|piece| *piece < 20));
    assert_eq!(by_peer.len(), 1, "{fetches:?}");
    assert!(!by_sender.is_empty(), "{fetches:?}");
    assert_eq!(sources[&0], 1);
}

#[test]
fn source_of_wrong_data_is_avoided_by_one_then_by_all() {
    let mut told = Told::new(&[PIECES, 0, 0, 0]);
    told.assign(2, 0);
    let (_, first) = told.fetches();
    assert_eq!(first.len(), 2);
    let accuser = first[0].0;
    for (index, piece) in first {
        assert_eq!(index, accuser, "they come in order");
        assert!(!told.roster.fetch_failed(index, piece, FetchFailure::Wrong));
    }
    told.assign(2, 0);
    let (_, second) = told.fetches();
    assert!(second.len() == 2 && second.iter().all(|(index, _)| *index != accuser), "{second:?}");
    let (index, piece) = second[0];
    assert!(!told.roster.fetch_failed(index, piece, FetchFailure::Wrong));
    told.assign(2, 0);
    assert_eq!(told.fetches().1, [], "two have said so");
}

#[test]
fn unreachable_source_is_still_used_by_other_receivers() {
    let mut told = Told::new(&[PIECES, 0, 0]);
    told.assign(1, 0);
    let (_, first) = told.fetches();
    let (index, piece) = first[0];
    assert!(!told.roster.fetch_failed(index, piece, FetchFailure::Unreachable));
    told.assign(1, 0);
    let (_, second) = told.fetches();
    assert!(second.len() == 1 && second[0].0 != index, "{second:?}");
}

#[test]
fn piece_that_stays_wrong_from_the_sender_is_given_up() {
    let mut told = Told::new(&[0]);
    for time in 1..=MAX_WRONG_FROM_SENDER {
        told.assign(1, 1);
        let (index, piece) = told.fetches().1[0];
        let is_hopeless = told.roster.fetch_failed(index, piece, FetchFailure::Wrong);
        assert_eq!(is_hopeless, time == MAX_WRONG_FROM_SENDER);
    }
    told.roster.give_up(0, "wrong".into());
    assert_eq!(told.roster.rows[0].told.state, State::Failed("wrong".into()));
    assert_eq!(
        told.frames[0].try_iter().last(),
        Some(FromSender::Refused { reason: "wrong".into() })
    );
}

#[test]
fn lost_receiver_frees_its_fetches_and_keeps_its_row() {
    let mut told = Told::new(&[PIECES, 0, 0]);
    told.assign(1, 0);
    let (_, first) = told.fetches();
    let index = first[0].0;
    let link = index as u64 + 1;
    assert!(told.roster.lost(index, link));
    assert!(!told.roster.lost(index, link), "that connection is not there any more");
    assert_eq!(told.roster.rows[index].told.state, State::Gone);
    told.assign(1, 0);
    let (_, second) = told.fetches();
    assert!(second.len() == 1 && second[0].0 != index, "{second:?}");
    assert_eq!(told.ready(index, 7), index);
    let row = &told.roster.rows[index];
    assert_eq!((row.told.state.clone(), row.told.resumed_bytes), (State::Receiving, 7 << 20));
    assert_eq!(row.wanted.count(), PIECES - 7);
    assert_eq!(told.roster.rows.len(), 3);
}

#[test]
fn one_that_failed_early_is_the_same_when_it_tries_again() {
    let mut told = Told::new(&[]);
    told.fail_early();
    assert_eq!(told.roster.rows[0].told.state, State::Failed("exists".into()));
    assert_eq!(told.ready(0, 0), 0);
    assert_eq!(told.ready(1, 0), 1);
}

#[test]
fn failure_stays_listed_when_a_namesake_on_the_host_joins() {
    let mut told = Told::new(&[]);
    told.fail_early();
    assert_eq!(told.ready(1, 0), 1);
    assert!(told.roster.lost(1, 1));
    assert_eq!(told.ready(2, 0), 2, "nor is one that is lost");
    let states = told.roster.rows.iter().map(|row| row.told.state.clone());
    let failed = State::Failed("exists".into());
    assert_eq!(states.collect::<Vec<_>>(), [failed, State::Gone, State::Receiving]);
}

#[test]
fn receiver_lost_before_it_was_ready_has_one_row_on_return() {
    let mut told = Told::new(&[]);
    // The receiver has connected again before the loss of its first connection was noticed.
    told.prepare(50, 0);
    told.prepare(51, 0);
    assert_eq!(told.roster.lost_early(50), None);
    assert!(!told.roster.preparing.is_empty());
    assert_eq!(told.roster.lost_early(51).as_deref(), Some("host"));
    assert!(told.roster.preparing.is_empty());
    assert_eq!(told.roster.rows[0].told.state, State::Gone);
    assert_eq!(told.ready(0, 0), 0);
    told.prepare(52, 0);
    assert_eq!(told.roster.lost_early(52), None, "it is there by the other connection");
    assert_eq!(told.roster.rows[0].told.state, State::Receiving);
    assert_eq!(told.roster.rows.len(), 1);
}

#[test]
fn receiver_not_ready_in_time_has_failed() {
    let mut told = Told::new(&[]);
    told.prepare(50, 0);
    let roster = &mut told.roster;
    let hour = Duration::from_secs(3600);
    assert!(roster.give_up_overdue(hour, "slow").is_empty());
    assert!(roster.preparing.contains_key(&50));
    assert_eq!(roster.give_up_overdue(Duration::ZERO, "slow"), ["host"]);
    assert!(!roster.preparing.contains_key(&50));
    assert_eq!(roster.lost_early(50), None, "it has failed before");
    assert_eq!(roster.rows[0].told.state, State::Failed("slow".into()));
}

#[test]
fn ranges_are_in_order_and_not_too_many() {
    assert!(is_in_order(&vec![(0, 0), (2, 5), (6, 6)]));
    for wrong in [vec![(1, 0)], vec![(0, 2), (2, 3)], vec![(5, 6), (1, 2)]] {
        assert!(!is_in_order(&wrong), "{wrong:?}");
    }
    let many: Ranges = (0..=MAX_RANGES as u32).map(|at| (2 * at, 2 * at)).collect();
    assert!(!is_in_order(&many));
    assert!(is_in_order(&many[1..].to_vec()));
    let all: Vec<u32> = within(&vec![(3, u32::MAX)], 6).collect();
    assert_eq!(all, [3, 4, 5]);
}

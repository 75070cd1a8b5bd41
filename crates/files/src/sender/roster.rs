//! State of each receiver at the sender.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use crate::frame::{FetchFailure, FromSender, Ranges, Way};
use crate::limits::{MAX_WRONG_FROM_SENDER, SIGN_OF_LIFE, SLOWEST_PIECE};
use crate::manifest::Manifest;
use crate::piece::PieceSet;
use crate::sender::ranges::within;
use crate::sender::who::Who;
use crate::summary::{ReceiverRow, State};

/// Number of a receiver, in the order of arrival.
pub(crate) type Index = usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Sender,
    Peer(Index),
}

pub(crate) struct Roster {
    pieces: u32,
    rows: Vec<Row>,
    /// Receivers that have sent a hello and are not ready yet, by connection, with the time of the
    /// hello.
    preparing: BTreeMap<u64, (Who, Instant)>,
    /// Number of fetches that the sender serves at the moment.
    pub(crate) from_sender: usize,
}

pub(crate) struct Row {
    pub(crate) told: ReceiverRow,
    /// Hash of its host name and target directory. Together with its host address it distinguishes
    /// receivers of the same name.
    place: [u8; 16],
    key: [u8; 16],
    link: Option<Link>,
    pub(crate) have: PieceSet,
    /// Pieces that it must fetch: missing, and not to be delivered by the stream any more.
    pub(crate) wanted: PieceSet,
    pub(crate) fetching: BTreeMap<u32, Source>,
    /// Address at which it serves pieces.
    piece_address: Option<SocketAddr>,
    /// Number of assigned fetches that it serves.
    pub(crate) serving: usize,
    /// Peers that are not assigned to it any more.
    shunned: BTreeSet<Index>,
    /// Receivers that received wrong data from it.
    accusers: BTreeSet<Index>,
    wrong_from_sender: u32,
    /// `true` if it has reported the end of its stream, and thereby all pieces from it.
    pub(crate) is_settled: bool,
    /// Time at which it last obtained a piece, became ready or was lost.
    pub(crate) moved_at: Instant,
    /// Time at which it last sent a frame.
    pub(crate) heard_at: Instant,
    /// Time by which the last of its fetches must have ended.
    busy_until: Instant,
    /// Piece from which to continue the search for pieces to fetch.
    pub(crate) cursor: u32,
}

pub(crate) struct Link {
    /// Number of the connection, unique within the sender.
    pub(crate) number: u64,
    pub(crate) frames: SyncSender<FromSender>,
    pub(crate) stream: Arc<TcpStream>,
}

/// Content of a receiver's `Ready` frame, with its connection.
pub(crate) struct Ready {
    pub(crate) who: Who,
    pub(crate) key: [u8; 16],
    pub(crate) piece_port: u16,
    pub(crate) have: PieceSet,
    pub(crate) link: Link,
}

/// Time limit of a fetch, in addition to the time for its bytes.
const FETCH_OVERHEAD: Duration = Duration::from_secs(30);
/// Time without a frame after which other receivers do not wait for a receiver. Each sends two
/// keepalives in this time.
const QUIET: Duration = SIGN_OF_LIFE.saturating_mul(2);
/// Number of receivers that must report wrong data from a peer before the peer is not assigned to
/// any receiver.
const ACCUSERS_BELIEVED: usize = 2;

impl Roster {
    pub(crate) fn new(pieces: u32) -> Self {
        Self { pieces, rows: Vec::new(), preparing: BTreeMap::new(), from_sender: 0 }
    }

    pub(crate) fn rows(&self) -> &[Row] {
        &self.rows
    }

    pub(crate) fn row(&self, index: Index) -> &Row {
        &self.rows[index]
    }

    pub(crate) fn row_mut(&mut self, index: Index) -> &mut Row {
        &mut self.rows[index]
    }

    pub(crate) fn prepare(&mut self, link: u64, who: Who) {
        self.preparing.insert(link, (who, Instant::now()));
    }

    pub(crate) fn is_preparing(&self, link: u64) -> bool {
        self.preparing.contains_key(&link)
    }

    /// Returns the number of receivers that have sent a hello and are not ready yet.
    pub(crate) fn preparing(&self) -> usize {
        self.preparing.len()
    }

    /// Returns `true` if a receiver that is connected and was heard lately has missing pieces.
    pub(crate) fn is_anybody_lacking(&self) -> bool {
        let lacks = |row: &Row| row.is_receiving() && !row.have.is_full();
        self.rows.iter().any(|row| lacks(row) && row.heard_at.elapsed() < QUIET)
    }

    /// Returns the time since any connected receiver with missing pieces obtained one.
    pub(crate) fn still_for(&self) -> Duration {
        let lacking = self.rows.iter().filter(|row| row.is_receiving() && !row.have.is_full());
        lacking.map(|row| row.moved_at.elapsed()).min().unwrap_or(Duration::MAX)
    }

    /// Ends the connections of receivers that have finished, because no connected receiver needs
    /// their pieces.
    pub(crate) fn release_finished(&mut self) {
        for row in self.rows.iter_mut().filter(|row| row.told.state == State::Finished) {
            row.tell(FromSender::Done);
            row.hang_up();
        }
    }

    pub(crate) fn is_any_preparing(&self) -> bool {
        !self.preparing.is_empty()
    }

    /// Gives up receivers that have been preparing for longer than `patience`. Returns their names.
    pub(crate) fn give_up_overdue(&mut self, patience: Duration, reason: &str) -> Vec<String> {
        let overdue = |(_, (_, began)): &(&u64, &(Who, Instant))| began.elapsed() >= patience;
        let links: Vec<u64> =
            self.preparing.iter().filter(overdue).map(|(link, _)| *link).collect();
        links.iter().filter_map(|link| self.failed_early(*link, reason)).collect()
    }

    /// Adds a receiver that is ready, for the first time or again, when the stream has passed all
    /// pieces before `position`.
    pub(crate) fn ready(&mut self, ready: Ready, manifest: &Manifest, position: u32) -> Index {
        let pieces = self.pieces;
        let host = ready.who.host;
        let index = self.row_of(&ready.key, ready.who);
        self.preparing.remove(&ready.link.number);
        self.release_all(index);
        let row = &mut self.rows[index];
        let had = ready.have.iter().filter(|piece| !row.have.contains(*piece));
        let had = had.filter_map(|piece| manifest.place(piece));
        row.told.resumed_bytes += had.map(|place| u64::from(place.bytes)).sum::<u64>();
        row.key = ready.key;
        row.told.state = State::Receiving;
        row.told.pieces = ready.have.count();
        row.have = ready.have;
        row.wanted = PieceSet::none_of(pieces);
        row.want_from_to(0, position);
        row.piece_address = Some(SocketAddr::new(host, ready.piece_port));
        row.is_settled = false;
        row.moved_at = Instant::now();
        row.heard_at = Instant::now();
        // Receivers that lack the same pieces start to fetch at different positions.
        row.cursor = u32::from_be_bytes([ready.key[0], ready.key[1], ready.key[2], ready.key[3]])
            % pieces.max(1);
        if let Some(old) = row.link.replace(ready.link) {
            old.close();
        }
        // Earlier failures of the receiver do not apply to its new connection.
        for other in &mut self.rows {
            other.shunned.remove(&index);
        }
        index
    }

    /// Records that a receiver failed, or was given up, while it was preparing. Returns its name,
    /// or `None` if it was not preparing.
    pub(crate) fn failed_early(&mut self, link: u64, reason: &str) -> Option<String> {
        let (who, _) = self.preparing.remove(&link)?;
        let name = who.name.clone();
        let index = self.row_of(&[0; 16], who);
        self.rows[index].told.state = State::Failed(reason.to_owned());
        Some(name)
    }

    /// Records that the connection of a preparing receiver was lost. Returns its name, or `None` if
    /// the receiver is already known, for example by another connection.
    pub(crate) fn lost_early(&mut self, link: u64) -> Option<String> {
        let (who, _) = self.preparing.remove(&link)?;
        let mut others = self.preparing.values().map(|(other, _)| other);
        let is_known = others.any(|other| other.is(who.place, who.host))
            || self.rows.iter().any(|row| who.is(row.place, row.told.host));
        if is_known {
            return None;
        }
        let name = who.name.clone();
        self.add(who);
        Some(name)
    }

    /// Returns the row of a receiver: its earlier one, or a new one.
    fn row_of(&mut self, key: &[u8; 16], who: Who) -> Index {
        self.known(key, &who).unwrap_or_else(|| self.add(who))
    }

    fn add(&mut self, who: Who) -> Index {
        self.rows.push(Row::new(who, self.pieces));
        self.rows.len() - 1
    }

    /// Returns the row of a known receiver: one with the same key, or one that is gone or failed
    /// with the same place and host. Names do not identify receivers, because all receivers of a
    /// host may have the host's name.
    fn known(&self, key: &[u8; 16], who: &Who) -> Option<Index> {
        let by_key = self.rows.iter().position(|row| row.key == *key && row.key != [0; 16]);
        by_key.or_else(|| {
            self.rows.iter().position(|row| {
                let is_over = matches!(row.told.state, State::Gone | State::Failed(_));
                is_over && who.is(row.place, row.told.host)
            })
        })
    }

    pub(crate) fn has(&mut self, index: Index, way: Way, pieces: &Ranges, manifest: &Manifest) {
        for piece in within(pieces, manifest.pieces()) {
            self.release(index, piece);
            let row = &mut self.rows[index];
            row.wanted.remove(piece);
            if row.have.insert(piece) {
                let bytes = manifest.place(piece).map_or(0, |place| place.bytes.into());
                *row.told.bytes_by(way) += bytes;
                row.told.pieces = row.have.count();
                row.moved_at = Instant::now();
            }
        }
    }

    /// Records pieces that the stream will not deliver to a receiver.
    pub(crate) fn missed(&mut self, index: Index, pieces: &Ranges, wrong: u32) {
        let row = &mut self.rows[index];
        row.told.wrong_pieces += u64::from(wrong);
        for piece in within(pieces, row.have.pieces()) {
            if !row.have.contains(piece) {
                row.wanted.insert(piece);
            }
        }
    }

    /// Returns `true` if all connected receivers have reported their pieces from the stream.
    pub(crate) fn is_settled(&self) -> bool {
        let mut receiving = self.rows.iter().filter(|row| row.is_receiving());
        receiving.all(|row| row.is_settled || row.have.is_full())
    }

    /// Handles a failed fetch.
    ///
    /// The peer is not assigned to this receiver any more. A peer that two receivers report for
    /// wrong data is not assigned to any. Returns `true` if the receiver has received wrong data
    /// from the sender itself too often.
    pub(crate) fn fetch_failed(&mut self, index: Index, piece: u32, why: FetchFailure) -> bool {
        let Some(source) = self.release(index, piece) else { return false };
        let is_wrong = why == FetchFailure::Wrong;
        let row = &mut self.rows[index];
        row.told.wrong_pieces += u64::from(is_wrong);
        match source {
            Source::Sender => row.wrong_from_sender += u32::from(is_wrong),
            Source::Peer(peer) => {
                row.shunned.insert(peer);
                if is_wrong {
                    self.rows[peer].accusers.insert(index);
                }
            }
        }
        self.rows[index].wrong_from_sender >= MAX_WRONG_FROM_SENDER
    }

    /// Marks a receiver as failed, notifies it, and ends its connection.
    pub(crate) fn give_up(&mut self, index: Index, reason: String) {
        self.release_all(index);
        let row = &mut self.rows[index];
        row.tell(FromSender::Refused { reason: reason.clone() });
        row.hang_up();
        row.told.state = State::Failed(reason);
    }

    /// Handles the loss of a receiver's connection. Returns `false` if the receiver has another
    /// connection by now.
    pub(crate) fn lost(&mut self, index: Index, link: u64) -> bool {
        if self.rows[index].link.as_ref().is_none_or(|now| now.number != link) {
            return false;
        }
        self.release_all(index);
        let row = &mut self.rows[index];
        row.link = None;
        row.moved_at = Instant::now();
        if row.told.state == State::Receiving {
            row.told.state = State::Gone;
        }
        true
    }

    /// Returns the number of further fetches that all sources together could serve.
    pub(crate) fn room(&self, per_peer: usize, from_sender: usize) -> usize {
        let peers = self.rows.iter().filter(|row| row.gives());
        let peers: usize = peers.map(|row| per_peer.saturating_sub(row.serving)).sum();
        peers + from_sender.saturating_sub(self.from_sender)
    }

    /// Returns a source of `piece` for the receiver `index`, or `None` if all sources are busy.
    pub(crate) fn source(
        &self,
        index: Index,
        piece: u32,
        per_peer: usize,
        from_sender: usize,
    ) -> Option<(Source, Option<SocketAddr>)> {
        let row = &self.rows[index];
        let mut least: Option<(Index, usize)> = None;
        let mut is_there = false;
        // Each receiver starts the search after its own row, so that they do not all select the
        // same peer.
        let others = (index + 1..self.rows.len()).chain(0..index);
        for at in others {
            let other = &self.rows[at];
            let gives = other.gives() && other.have.contains(piece);
            if !gives || row.shunned.contains(&at) {
                continue;
            }
            is_there = true;
            if other.serving < per_peer && least.is_none_or(|(_, serving)| other.serving < serving)
            {
                least = Some((at, other.serving));
                if other.serving == 0 {
                    break;
                }
            }
        }
        if let Some((at, _)) = least {
            return Some((Source::Peer(at), self.rows[at].piece_address));
        }
        let sender_can = !is_there && self.from_sender < from_sender;
        sender_can.then_some((Source::Sender, None))
    }

    /// Records that `piece` was assigned to `index`, to be fetched from `source`.
    pub(crate) fn fetch(&mut self, index: Index, piece: u32, bytes: u32, source: Source) {
        let time = FETCH_OVERHEAD + Duration::from_secs(1) * (bytes / SLOWEST_PIECE);
        self.rows[index].busy_until = Instant::now() + time;
        if let Source::Peer(peer) = source {
            self.rows[peer].serving += 1;
        } else {
            self.from_sender += 1;
        }
        self.rows[index].fetching.insert(piece, source);
    }

    fn release(&mut self, index: Index, piece: u32) -> Option<Source> {
        let source = self.rows[index].fetching.remove(&piece)?;
        match source {
            Source::Peer(peer) => self.rows[peer].serving -= 1,
            Source::Sender => self.from_sender -= 1,
        }
        Some(source)
    }

    fn release_all(&mut self, index: Index) {
        while let Some((piece, _)) = self.rows[index].fetching.first_key_value() {
            let piece = *piece;
            self.release(index, piece);
        }
    }
}

impl Row {
    fn new(who: Who, pieces: u32) -> Self {
        let told = ReceiverRow {
            name: who.name,
            host: who.host,
            state: State::Gone,
            pieces: 0,
            stream_bytes: 0,
            peer_bytes: 0,
            sender_bytes: 0,
            resumed_bytes: 0,
            wrong_pieces: 0,
        };
        Self {
            told,
            place: who.place,
            key: [0; 16],
            link: None,
            have: PieceSet::none_of(pieces),
            wanted: PieceSet::none_of(pieces),
            fetching: BTreeMap::new(),
            piece_address: None,
            serving: 0,
            shunned: BTreeSet::new(),
            accusers: BTreeSet::new(),
            wrong_from_sender: 0,
            is_settled: false,
            moved_at: Instant::now(),
            heard_at: Instant::now(),
            busy_until: Instant::now(),
            cursor: 0,
        }
    }

    pub(crate) fn is_receiving(&self) -> bool {
        self.told.state == State::Receiving && self.link.is_some()
    }

    /// Returns `true` if other receivers can be assigned to fetch from it.
    fn gives(&self) -> bool {
        self.link.is_some() && self.accusers.len() < ACCUSERS_BELIEVED
    }

    /// Returns `true` if it obtained a piece within `patience`, or has fetches whose time has not
    /// passed.
    pub(crate) fn is_moving(&self, patience: Duration) -> bool {
        self.moved_at.elapsed() < patience || Instant::now() < self.busy_until
    }

    pub(crate) fn is_taking_part(&self) -> bool {
        self.is_receiving() || self.told.state == State::Finished
    }

    /// Marks its missing pieces between `from` and `to` as wanted.
    pub(crate) fn want_from_to(&mut self, from: u32, to: u32) {
        let mut at = from;
        while let Some(piece) = self.have.first_missing(at).filter(|piece| *piece < to) {
            self.wanted.insert(piece);
            at = piece + 1;
        }
    }

    /// Queues a frame. If the queue is full because the receiver does not read, the connection is
    /// closed. Returns `true` if the frame was queued.
    pub(crate) fn tell(&self, frame: FromSender) -> bool {
        let Some(link) = &self.link else { return false };
        let is_taken = link.frames.try_send(frame).is_ok();
        if !is_taken {
            link.close();
        }
        is_taken
    }

    /// Closes the connection at once.
    pub(crate) fn cut(&mut self) {
        if let Some(link) = self.link.take() {
            link.close();
        }
    }

    /// Ends the connection once all queued frames are written.
    pub(crate) fn hang_up(&mut self) {
        self.link = None;
    }
}

impl Link {
    fn close(&self) {
        // An error means that the connection is already closed.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

impl ReceiverRow {
    fn bytes_by(&mut self, way: Way) -> &mut u64 {
        match way {
            Way::Stream => &mut self.stream_bytes,
            Way::Peer => &mut self.peer_bytes,
            Way::Sender => &mut self.sender_bytes,
        }
    }
}

#[cfg(test)]
#[path = "roster_tests.rs"]
mod tests;

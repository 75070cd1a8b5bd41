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

pub(crate) type Index = usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Sender,
    Peer(Index),
}

pub(crate) struct Roster {
    pieces: u32,
    pub(crate) rows: Vec<Row>,
    pub(crate) preparing: BTreeMap<u64, (Who, Instant)>,
    pub(crate) from_sender: usize,
}

pub(crate) struct Row {
    pub(crate) told: ReceiverRow,
    /// Hash of host name and target directory, which distinguishes receivers of the same name.
    place: [u8; 16],
    key: [u8; 16],
    link: Option<Link>,
    pub(crate) have: PieceSet,
    pub(crate) wanted: PieceSet,
    pub(crate) fetching: BTreeMap<u32, Source>,
    piece_address: Option<SocketAddr>,
    pub(crate) serving: usize,
    shunned: BTreeSet<Index>,
    accusers: BTreeSet<Index>,
    wrong_from_sender: u32,
    /// `true` if the receiver has reported the end of its stream, and thereby all pieces from it.
    pub(crate) is_settled: bool,
    /// Time of the receiver's last piece, connection or loss, or of the end of the stream.
    pub(crate) moved_at: Instant,
    pub(crate) heard_at: Instant,
    busy_until: Instant,
    pub(crate) cursor: u32,
}

pub(crate) struct Link {
    pub(crate) number: u64,
    pub(crate) frames: SyncSender<FromSender>,
    pub(crate) stream: Arc<TcpStream>,
}

pub(crate) struct Ready {
    pub(crate) who: Who,
    pub(crate) key: [u8; 16],
    pub(crate) piece_port: u16,
    pub(crate) have: PieceSet,
    pub(crate) link: Link,
}

const FETCH_OVERHEAD: Duration = Duration::from_secs(30);
/// Time in which each receiver sends two keepalives.
const QUIET: Duration = SIGN_OF_LIFE.saturating_mul(2);
const ACCUSERS_BELIEVED: usize = 2;

impl Roster {
    pub(crate) fn new(pieces: u32) -> Self {
        Self { pieces, rows: Vec::new(), preparing: BTreeMap::new(), from_sender: 0 }
    }

    pub(crate) fn prepare(&mut self, link: u64, who: Who) {
        self.preparing.insert(link, (who, Instant::now()));
    }

    pub(crate) fn is_anybody_lacking(&self) -> bool {
        let lacks = |row: &Row| row.is_receiving() && !row.have.is_full();
        self.rows.iter().any(|row| lacks(row) && row.heard_at.elapsed() < QUIET)
    }

    pub(crate) fn still_for(&self) -> Duration {
        let lacking = self.rows.iter().filter(|row| row.is_receiving() && !row.have.is_full());
        lacking.map(|row| row.moved_at.elapsed()).min().unwrap_or(Duration::MAX)
    }

    /// Releases the receivers that have finished. Call it once no connected receiver needs pieces
    /// from them.
    pub(crate) fn release_finished(&mut self) {
        for row in self.rows.iter_mut().filter(|row| row.told.state == State::Finished) {
            row.tell(FromSender::Done);
            row.hang_up();
        }
    }

    pub(crate) fn give_up_overdue(&mut self, patience: Duration, reason: &str) -> Vec<String> {
        let overdue = |(_, (_, began)): &(&u64, &(Who, Instant))| began.elapsed() >= patience;
        let links: Vec<u64> =
            self.preparing.iter().filter(overdue).map(|(link, _)| *link).collect();
        links.iter().filter_map(|link| self.failed_early(*link, reason)).collect()
    }

    /// Records that a receiver is ready. The stream has passed all pieces before `position`.
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
        row.cursor = (u128::from_be_bytes(ready.key) >> 96) as u32 % pieces.max(1);
        if let Some(old) = row.link.replace(ready.link) {
            old.close();
        }
        // Earlier failures of the receiver do not apply to its new connection.
        for other in &mut self.rows {
            other.shunned.remove(&index);
        }
        index
    }

    /// Fails a preparing receiver. Returns its name, or `None` if it was not preparing.
    pub(crate) fn failed_early(&mut self, link: u64, reason: &str) -> Option<String> {
        let (who, _) = self.preparing.remove(&link)?;
        let name = who.name.clone();
        let index = self.row_of(&[0; 16], who);
        self.rows[index].told.state = State::Failed(reason.to_owned());
        Some(name)
    }

    /// Records the loss of a preparing receiver. Returns its name, or `None` if it was not
    /// preparing or is already known, for example by another connection.
    pub(crate) fn lost_early(&mut self, link: u64) -> Option<String> {
        let (who, _) = self.preparing.remove(&link)?;
        let mut others = self.preparing.values().map(|(other, _)| other);
        let is_known = others.any(|other| other.is(who.place, who.host))
            || self.rows.iter().any(|row| who.is(row.place, row.told.host));
        if is_known {
            return None;
        }
        let name = who.name.clone();
        self.rows.push(Row::new(who, self.pieces));
        Some(name)
    }

    fn row_of(&mut self, key: &[u8; 16], who: Who) -> Index {
        self.known(key, &who).unwrap_or_else(|| {
            self.rows.push(Row::new(who, self.pieces));
            self.rows.len() - 1
        })
    }

    /// Returns the row of a receiver that connected before.
    ///
    /// Names do not identify receivers, because all receivers on a host may have the host's name.
    /// The key identifies a receiver, as does the place if the receiver is gone or failed.
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

    pub(crate) fn missed(&mut self, index: Index, pieces: &Ranges, wrong: u32) {
        let row = &mut self.rows[index];
        row.told.wrong_pieces += u64::from(wrong);
        for piece in within(pieces, row.have.pieces()) {
            if !row.have.contains(piece) {
                row.wanted.insert(piece);
            }
        }
    }

    pub(crate) fn is_settled(&self) -> bool {
        let mut receiving = self.rows.iter().filter(|row| row.is_receiving());
        receiving.all(|row| row.is_settled || row.have.is_full())
    }

    /// Records a failed fetch. Returns `true` if the sender sent the receiver too much wrong data.
    ///
    /// A peer that two receivers report for wrong data is no longer assigned to any receiver.
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

    pub(crate) fn give_up(&mut self, index: Index, reason: String) {
        self.release_all(index);
        let row = &mut self.rows[index];
        row.tell(FromSender::Refused { reason: reason.clone() });
        row.hang_up();
        row.told.state = State::Failed(reason);
    }

    /// Records the loss of a connection. Returns `false` if it was not the current one.
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

    pub(crate) fn room(&self, per_peer: usize, from_sender: usize) -> usize {
        let peers = self.rows.iter().filter(|row| row.gives());
        let peers: usize = peers.map(|row| per_peer.saturating_sub(row.serving)).sum();
        peers + from_sender.saturating_sub(self.from_sender)
    }

    pub(crate) fn source(
        &self,
        index: Index,
        piece: u32,
        per_peer: usize,
        from_sender: usize,
    ) -> Option<(Source, Option<SocketAddr>)> {
        let row = &self.rows[index];
        let mut least: Option<Index> = None;
        let mut is_there = false;
        // Receivers must not all select the same peer.
        let others = (index + 1..self.rows.len()).chain(0..index);
        for at in others {
            let other = &self.rows[at];
            let gives = other.gives() && other.have.contains(piece);
            if !gives || row.shunned.contains(&at) {
                continue;
            }
            is_there = true;
            let is_less = least.is_none_or(|least| other.serving < self.rows[least].serving);
            if other.serving < per_peer && is_less {
                least = Some(at);
                if other.serving == 0 {
                    break;
                }
            }
        }
        if let Some(at) = least {
            return Some((Source::Peer(at), self.rows[at].piece_address));
        }
        let sender_can = !is_there && self.from_sender < from_sender;
        sender_can.then_some((Source::Sender, None))
    }

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

    fn gives(&self) -> bool {
        self.link.is_some() && self.accusers.len() < ACCUSERS_BELIEVED
    }

    pub(crate) fn is_moving(&self, patience: Duration) -> bool {
        self.moved_at.elapsed() < patience || Instant::now() < self.busy_until
    }

    pub(crate) fn is_taking_part(&self) -> bool {
        self.is_receiving() || self.told.state == State::Finished
    }

    pub(crate) fn want_from_to(&mut self, from: u32, to: u32) {
        let mut at = from;
        while let Some(piece) = self.have.first_missing(at).filter(|piece| *piece < to) {
            self.wanted.insert(piece);
            at = piece + 1;
        }
    }

    /// Queues a frame. If the queue is full, because the receiver does not read, the connection is
    /// closed.
    pub(crate) fn tell(&self, frame: FromSender) -> bool {
        let Some(link) = &self.link else { return false };
        let is_taken = link.frames.try_send(frame).is_ok();
        if !is_taken {
            link.close();
        }
        is_taken
    }

    pub(crate) fn cut(&mut self) {
        if let Some(link) = self.link.take() {
            link.close();
        }
    }

    pub(crate) fn hang_up(&mut self) {
        self.link = None;
    }
}

impl Link {
    fn close(&self) {
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

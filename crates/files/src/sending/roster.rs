//! What the sender knows of each receiver.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use crate::frame::{FetchFailure, FromSender, Ranges, Way};
use crate::limits::{MAX_WRONG_FROM_SENDER, SIGN_OF_LIFE, SLOWEST_PIECE};
use crate::manifest::Manifest;
use crate::piece::PieceSet;
use crate::sending::ranges::within;
use crate::sending::who::Who;
use crate::summary::{ReceiverRow, State};

/// The number of a receiver, in the order of their coming.
pub(crate) type Index = usize;

/// Whom a receiver was told to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Sender,
    Peer(Index),
}

/// All receivers.
pub(crate) struct Roster {
    /// How many there are to be had.
    pieces: u32,
    rows: Vec<Row>,
    /// Those who have said hello and are not ready yet, by connection, and since when.
    preparing: BTreeMap<u64, (Who, Instant)>,
    /// Fetches that the sender itself serves now.
    pub(crate) from_sender: usize,
}

/// One receiver.
pub(crate) struct Row {
    pub(crate) told: ReceiverRow,
    /// Where it receives into; with its host, this tells it apart from others of its name.
    place: [u8; 16],
    key: [u8; 16],
    link: Option<Link>,
    /// Verified by it.
    pub(crate) have: PieceSet,
    /// What it has to fetch: not there, and not to come by the stream any more.
    pub(crate) wanted: PieceSet,
    /// What it fetches now.
    pub(crate) fetching: BTreeMap<u32, Source>,
    /// Where it gives pieces.
    piece_address: Option<SocketAddr>,
    /// Fetches of others that it serves now.
    pub(crate) serving: usize,
    /// Whom it is not told to ask again.
    shunned: BTreeSet<Index>,
    /// Who got something wrong from it.
    accusers: BTreeSet<Index>,
    wrong_from_sender: u32,
    /// It has said that nothing comes by the stream any more, and so what it has.
    pub(crate) is_settled: bool,
    /// When it last got a piece, or came, or was lost.
    pub(crate) moved_at: Instant,
    /// When it last said anything.
    pub(crate) heard_at: Instant,
    /// When the last of its fetches must have come to an end.
    busy_until: Instant,
    /// Where to look on for what to fetch.
    pub(crate) cursor: u32,
}

/// A connection to a receiver.
pub(crate) struct Link {
    /// Which connection, of all.
    pub(crate) number: u64,
    pub(crate) frames: SyncSender<FromSender>,
    pub(crate) stream: Arc<TcpStream>,
}

/// What a receiver says when it can begin.
pub(crate) struct Ready {
    pub(crate) who: Who,
    pub(crate) key: [u8; 16],
    pub(crate) piece_port: u16,
    pub(crate) have: PieceSet,
    pub(crate) link: Link,
}

/// A fetch comes to an end, whatever happens, within this and the time for its bytes.
const FETCH_OVERHEAD: Duration = Duration::from_secs(30);
/// Nobody keeps the others for one that says nothing for so long: each says something twice in it.
const QUIET: Duration = SIGN_OF_LIFE.saturating_mul(2);
/// Two who got something wrong from the same one are believed by all.
const ACCUSERS_BELIEVED: usize = 2;

impl Roster {
    /// Nobody yet.
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

    /// Takes one that has said hello.
    pub(crate) fn prepare(&mut self, link: u64, who: Who) {
        self.preparing.insert(link, (who, Instant::now()));
    }

    pub(crate) fn is_preparing(&self, link: u64) -> bool {
        self.preparing.contains_key(&link)
    }

    /// How many have said hello and are not ready yet.
    pub(crate) fn preparing(&self) -> usize {
        self.preparing.len()
    }

    /// Whether somebody lacks pieces who is connected and was heard lately.
    pub(crate) fn is_anybody_lacking(&self) -> bool {
        let lacks = |row: &Row| row.is_receiving() && !row.have.is_full();
        self.rows.iter().any(|row| lacks(row) && row.heard_at.elapsed() < QUIET)
    }

    /// How long nobody who is connected and lacks pieces has got one.
    pub(crate) fn still_for(&self) -> Duration {
        let lacking = self.rows.iter().filter(|row| row.is_receiving() && !row.have.is_full());
        lacking.map(|row| row.moved_at.elapsed()).min().unwrap_or(Duration::MAX)
    }

    /// Lets those go who have everything under its final name: nobody who is there needs them.
    pub(crate) fn release_finished(&mut self) {
        for row in self.rows.iter_mut().filter(|row| row.told.state == State::Finished) {
            row.tell(FromSender::Done);
            row.hang_up();
        }
    }

    pub(crate) fn is_any_preparing(&self) -> bool {
        !self.preparing.is_empty()
    }

    /// Gives up those who have been preparing for longer than the patience, and says who they are.
    pub(crate) fn give_up_overdue(&mut self, patience: Duration, reason: &str) -> Vec<String> {
        let overdue = |(_, (_, began)): &(&u64, &(Who, Instant))| began.elapsed() >= patience;
        let links: Vec<u64> =
            self.preparing.iter().filter(overdue).map(|(link, _)| *link).collect();
        links.iter().filter_map(|link| self.failed_early(*link, reason)).collect()
    }

    /// Takes a receiver that can begin, for the first time or again, at the moment when the stream
    /// has passed all pieces before `position`.
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
        // Those who lack the same begin to fetch it at different places.
        row.cursor = u32::from_be_bytes([ready.key[0], ready.key[1], ready.key[2], ready.key[3]])
            % pieces.max(1);
        if let Some(old) = row.link.replace(ready.link) {
            old.close();
        }
        // What others hold against it was said of what it was.
        for other in &mut self.rows {
            other.shunned.remove(&index);
        }
        index
    }

    /// Notes one that gave up, or was given up, before it could begin, and says who it is; `None`
    /// if it was not preparing.
    pub(crate) fn failed_early(&mut self, link: u64, reason: &str) -> Option<String> {
        let (who, _) = self.preparing.remove(&link)?;
        let name = who.name.clone();
        let index = self.row_of(&[0; 16], who);
        self.rows[index].told.state = State::Failed(reason.to_owned());
        Some(name)
    }

    /// The connection of one that was preparing is lost. Says who it is, unless it is known
    /// already: it may have another connection.
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

    /// The row of a receiver: the one that it had before, or a new one.
    fn row_of(&mut self, key: &[u8; 16], who: Who) -> Index {
        self.known(key, &who).unwrap_or_else(|| self.add(who))
    }

    fn add(&mut self, who: Who) -> Index {
        self.rows.push(Row::new(who, self.pieces));
        self.rows.len() - 1
    }

    /// The row of a receiver that was there before: the same key, or one that is lost or has given
    /// up in the same place. Names tell nobody apart: all of a host may have the host's.
    fn known(&self, key: &[u8; 16], who: &Who) -> Option<Index> {
        let by_key = self.rows.iter().position(|row| row.key == *key && row.key != [0; 16]);
        by_key.or_else(|| {
            self.rows.iter().position(|row| {
                let is_over = matches!(row.told.state, State::Gone | State::Failed(_));
                is_over && who.is(row.place, row.told.host)
            })
        })
    }

    /// Counts pieces that a receiver has verified.
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

    /// What a receiver does not get by the stream any more.
    pub(crate) fn missed(&mut self, index: Index, pieces: &Ranges, wrong: u32) {
        let row = &mut self.rows[index];
        row.told.wrong_pieces += u64::from(wrong);
        for piece in within(pieces, row.have.pieces()) {
            if !row.have.contains(piece) {
                row.wanted.insert(piece);
            }
        }
    }

    /// Whether all who are connected have said what they got by the stream.
    pub(crate) fn is_settled(&self) -> bool {
        let mut receiving = self.rows.iter().filter(|row| row.is_receiving());
        receiving.all(|row| row.is_settled || row.have.is_full())
    }

    /// A fetch has failed: who did not give is not asked again by this receiver, and who gave
    /// something wrong to two is asked by nobody. True if even the sender's are wrong.
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

    /// A receiver has failed as the sender sees it. It is told, and its connection ends.
    pub(crate) fn give_up(&mut self, index: Index, reason: String) {
        self.release_all(index);
        let row = &mut self.rows[index];
        row.tell(FromSender::Refused { reason: reason.clone() });
        row.hang_up();
        row.told.state = State::Failed(reason);
    }

    /// The connection of a receiver is lost. False if it has another one by now.
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

    /// How many more fetches could be served, by whomever.
    pub(crate) fn room(&self, per_peer: usize, from_sender: usize) -> usize {
        let peers = self.rows.iter().filter(|row| row.gives());
        let peers: usize = peers.map(|row| per_peer.saturating_sub(row.serving)).sum();
        peers + from_sender.saturating_sub(self.from_sender)
    }

    /// Whom `index` can ask for `piece` now. `None` if all who have it are busy.
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
        // Each looks from its own neighbour on, so that they do not all find the same first.
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

    /// Notes that `index` fetches `piece` from `source`.
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

    /// Whether it is connected and has not got everything.
    pub(crate) fn is_receiving(&self) -> bool {
        self.told.state == State::Receiving && self.link.is_some()
    }

    /// Whether others can be told to ask it.
    fn gives(&self) -> bool {
        self.link.is_some() && self.accusers.len() < ACCUSERS_BELIEVED
    }

    /// Whether it gets something, or may any moment.
    pub(crate) fn is_moving(&self, patience: Duration) -> bool {
        self.moved_at.elapsed() < patience || Instant::now() < self.busy_until
    }

    /// Whether it is connected, or has everything.
    pub(crate) fn is_taking_part(&self) -> bool {
        self.is_receiving() || self.told.state == State::Finished
    }

    /// Wants what it lacks of these.
    pub(crate) fn want_from_to(&mut self, from: u32, to: u32) {
        let mut at = from;
        while let Some(piece) = self.have.first_missing(at).filter(|piece| *piece < to) {
            self.wanted.insert(piece);
            at = piece + 1;
        }
    }

    /// Sends a frame, or closes the connection of somebody who does not read.
    pub(crate) fn tell(&self, frame: FromSender) -> bool {
        let Some(link) = &self.link else { return false };
        let is_taken = link.frames.try_send(frame).is_ok();
        if !is_taken {
            link.close();
        }
        is_taken
    }

    /// Closes the connection without a word.
    pub(crate) fn cut(&mut self) {
        if let Some(link) = self.link.take() {
            link.close();
        }
    }

    /// Lets the connection end when what waits has been written.
    pub(crate) fn hang_up(&mut self) {
        self.link = None;
    }
}

impl Link {
    fn close(&self) {
        // If it is closed already, so much the better.
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

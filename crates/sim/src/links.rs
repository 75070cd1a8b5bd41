//! Connections between machines: ordered, reliable streams of bytes, like those of TCP.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use carom_proto::membership::link::{LinkEnd, LinkId};
use carom_proto::{Rng, Time};

use crate::HostIx;

/// All connections of a world.
pub(crate) struct Links {
    links: BTreeMap<LinkIx, Link>,
    /// The ends in use by machines, by their hosts and numbers.
    ends: BTreeMap<(HostIx, LinkId), (LinkIx, Side)>,
    next: u64,
    /// Maximum unsent bytes on each side of a connection.
    pub(crate) buffer: usize,
    pub(crate) rng: Rng,
}

/// The number of a connection in its world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LinkIx(u64);

/// One of the two ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Side {
    Opener,
    Acceptor,
}

/// A connection, from the request to open it until both machines have closed it.
#[derive(Debug)]
pub(crate) struct Link {
    ends: [End; 2],
    /// Pieces that each side has sent.
    pipes: [Pipe; 2],
}

/// One end of a connection, and the pieces that have arrived there.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) host: HostIx,
    pub(crate) standing: Standing,
    /// Pieces that its machine has not read because it is paused.
    pub(crate) unread: VecDeque<Piece>,
    pub(crate) unread_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// No machine has accepted it.
    Unknown,
    /// In use by the machine, under this number.
    Known(LinkId),
    /// The machine has closed it, has received its end, or is gone.
    Gone,
}

/// Pieces in flight in one direction, in order.
#[derive(Debug, Default)]
pub(crate) struct Pipe {
    /// The pieces, each with its earliest time of arrival.
    queue: VecDeque<(Time, Piece)>,
    bytes: usize,
    last: Time,
    /// Time of the first of the failed attempts since the last success.
    failing_since: Option<Time>,
    pause: Duration,
    /// `true` if the next attempt is scheduled.
    pub(crate) is_due: bool,
}

/// A unit of transport on a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Request to open the connection.
    Open,
    /// Acceptance of the connection.
    Opened,
    /// Bytes from the other machine.
    Bytes(Vec<u8>),
    /// End of the connection, for this reason.
    End(LinkEnd),
}

impl Links {
    pub(crate) fn new(buffer: usize, seed: u64) -> Self {
        let (links, ends) = (BTreeMap::new(), BTreeMap::new());
        Self { links, ends, next: 0, buffer, rng: Rng::new(seed) }
    }

    /// Adds a connection that the machine on `from` calls `id`.
    pub(crate) fn add(&mut self, from: HostIx, id: LinkId, to: HostIx) -> LinkIx {
        let ix = LinkIx(self.next);
        self.next += 1;
        let ends = [End::new(from, Standing::Known(id)), End::new(to, Standing::Unknown)];
        self.links.insert(ix, Link { ends, pipes: [Pipe::default(), Pipe::default()] });
        self.ends.insert((from, id), (ix, Side::Opener));
        ix
    }

    /// Accepts the connection at its other end, and returns its number there.
    pub(crate) fn accept(&mut self, ix: LinkIx) -> Option<LinkId> {
        let end = self.links.get_mut(&ix)?.end_mut(Side::Acceptor);
        // Disjoint from the numbers that machines choose for the connections that they open.
        let id = LinkId(1 << 32 | ix.0);
        end.standing = Standing::Known(id);
        self.ends.insert((end.host, id), (ix, Side::Acceptor));
        Some(id)
    }

    pub(crate) fn get_mut(&mut self, ix: LinkIx) -> Option<&mut Link> {
        self.links.get_mut(&ix)
    }

    pub(crate) fn find(&self, host: HostIx, id: LinkId) -> Option<(LinkIx, Side)> {
        self.ends.get(&(host, id)).copied()
    }

    /// Returns the ends in use by the machine on `host`.
    pub(crate) fn at(&self, host: HostIx) -> Vec<(LinkIx, Side)> {
        let of_host = (host, LinkId(0))..=(host, LinkId(u64::MAX));
        self.ends.range(of_host).map(|(_, end)| *end).collect()
    }

    /// Returns the number of connections that the machine on `host` has opened and not closed.
    pub(crate) fn opened_by(&self, host: HostIx) -> usize {
        self.at(host).iter().filter(|(_, side)| *side == Side::Opener).count()
    }

    /// Closes this end of the connection. The connection is removed unless its other end is still
    /// in use.
    pub(crate) fn end(&mut self, ix: LinkIx, side: Side) {
        let Some(link) = self.links.get_mut(&ix) else { return };
        let end = link.end_mut(side);
        if let Standing::Known(id) = end.standing {
            self.ends.remove(&(end.host, id));
        }
        end.standing = Standing::Gone;
        end.unread.clear();
        end.unread_bytes = 0;
        if !matches!(link.end_mut(side.other()).standing, Standing::Known(_)) {
            self.links.remove(&ix);
        }
    }
}

impl Side {
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Opener => Self::Acceptor,
            Self::Acceptor => Self::Opener,
        }
    }
}

impl Link {
    pub(crate) fn end_mut(&mut self, side: Side) -> &mut End {
        &mut self.ends[side as usize]
    }

    /// Returns the pieces sent by this side.
    pub(crate) fn pipe_mut(&mut self, side: Side) -> &mut Pipe {
        &mut self.pipes[side as usize]
    }

    pub(crate) fn host(&self, side: Side) -> HostIx {
        self.ends[side as usize].host
    }

    /// Returns `true` if the request to open it has not arrived.
    pub(crate) fn is_unheard_of(&self) -> bool {
        let pipe = &self.pipes[Side::Opener as usize];
        matches!(pipe.queue.front(), Some((_, Piece::Open)))
    }
}

impl End {
    fn new(host: HostIx, standing: Standing) -> Self {
        Self { host, standing, unread: VecDeque::new(), unread_bytes: 0 }
    }

    /// Adds a piece that has arrived, to be read in order.
    pub(crate) fn take_in(&mut self, piece: Piece) {
        self.unread_bytes += piece.bytes();
        self.unread.push_back(piece);
    }

    pub(crate) fn next_unread(&mut self) -> Option<Piece> {
        let piece = self.unread.pop_front()?;
        self.unread_bytes -= piece.bytes();
        Some(piece)
    }
}

impl Pipe {
    /// Adds a piece that can arrive at `at`, but not before the pieces sent before it.
    pub(crate) fn push(&mut self, at: Time, piece: Piece) {
        self.last = at.max(self.last);
        self.bytes += piece.bytes();
        self.queue.push_back((self.last, piece));
    }

    /// Returns `true` if `bytes` more would exceed `limit`.
    pub(crate) fn is_full_with(&self, bytes: usize, limit: usize) -> bool {
        self.bytes + bytes > limit
    }

    /// Returns the earliest time of arrival of the next piece.
    pub(crate) fn next_at(&self) -> Option<Time> {
        self.queue.front().map(|(at, _)| *at)
    }

    /// Takes the next piece that could have arrived by `now`.
    pub(crate) fn next_by(&mut self, now: Time) -> Option<Piece> {
        self.next_at().filter(|at| *at <= now)?;
        let (_, piece) = self.queue.pop_front()?;
        self.bytes -= piece.bytes();
        Some(piece)
    }

    pub(crate) fn clear(&mut self) {
        self.queue.clear();
        self.bytes = 0;
    }

    /// Records a failed attempt. Returns the time of the next one, after a pause that doubles each
    /// time, or `None` if attempts have failed for [`BREAK_AFTER`].
    pub(crate) fn fail(&mut self, now: Time) -> Option<Time> {
        let since = *self.failing_since.get_or_insert(now);
        let pause = self.pause.max(FIRST_PAUSE);
        self.pause = (2 * pause).min(LAST_PAUSE);
        (now.since(since) < BREAK_AFTER).then(|| now + pause)
    }

    pub(crate) fn succeed(&mut self) {
        (self.failing_since, self.pause) = (None, Duration::ZERO);
    }
}

impl Piece {
    /// Returns the bytes of the machines in this piece.
    pub(crate) fn payload(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Open | Self::Opened | Self::End(_) => &[],
        }
    }

    fn bytes(&self) -> usize {
        self.payload().len()
    }
}

/// Maximum number of connections that one machine can have opened at a time, as in a node's driver.
pub(crate) const MAX_OPENED: usize = 14;
/// Maximum bytes that the host of a paused machine receives for it. More bytes wait at the sender.
pub(crate) const RECEIVE_BYTES: usize = 64 << 10;
/// First pause before a retransmission: the shortest of TCP on Linux.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// Longest such pause. That of TCP grows to minutes, but nodes give up a silent connection long
/// before.
const LAST_PAUSE: Duration = Duration::from_millis(1600);
/// Time without a successful attempt after which a connection breaks.
const BREAK_AFTER: Duration = Duration::from_secs(12);

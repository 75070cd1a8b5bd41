//! Links between machines: ordered, reliable streams of bytes, as TCP has them.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use carom_proto::membership::link::{LinkEnd, LinkId};
use carom_proto::{Rng, Time};

use crate::HostIx;

/// All links of a world.
pub(crate) struct Links {
    links: BTreeMap<LinkIx, Link>,
    /// The ends that machines know, by their hosts and their own numbers.
    ends: BTreeMap<(HostIx, LinkId), (LinkIx, Side)>,
    next: u64,
    /// Bytes that may wait on each side of a link.
    pub(crate) buffer: usize,
    pub(crate) rng: Rng,
}

/// The number of a link in its world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LinkIx(u64);

/// One of the two ends of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Side {
    Opener,
    Acceptor,
}

/// A link from when it is asked for until both machines have done with it.
#[derive(Debug)]
pub(crate) struct Link {
    ends: [End; 2],
    /// What each side has sent.
    pipes: [Pipe; 2],
}

/// One end: what has come there.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) host: HostIx,
    pub(crate) standing: Standing,
    /// What its machine has not read, because it is paused.
    pub(crate) unread: VecDeque<Piece>,
    pub(crate) unread_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Nobody has accepted it.
    Unknown,
    /// The machine knows it by this number.
    Known(LinkId),
    /// The machine has closed it, was told of its end, or is gone.
    Gone,
}

/// What is under way in one direction, in order.
#[derive(Debug, Default)]
pub(crate) struct Pipe {
    /// Each with the time at which it could arrive.
    queue: VecDeque<(Time, Piece)>,
    bytes: usize,
    last: Time,
    /// Since when nothing has got through, though it was tried.
    failing_since: Option<Time>,
    pause: Duration,
    /// Whether the next attempt is on the agenda.
    pub(crate) is_due: bool,
}

/// What travels on a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Somebody wants the link.
    Open,
    /// It is accepted.
    Opened,
    /// Bytes of the other machine's.
    Bytes(Vec<u8>),
    /// It has ended, for this reason.
    End(LinkEnd),
}

impl Links {
    pub(crate) fn new(buffer: usize, seed: u64) -> Self {
        let (links, ends) = (BTreeMap::new(), BTreeMap::new());
        Self { links, ends, next: 0, buffer, rng: Rng::new(seed) }
    }

    /// A link that the machine on `from` calls `id`.
    pub(crate) fn add(&mut self, from: HostIx, id: LinkId, to: HostIx) -> LinkIx {
        let ix = LinkIx(self.next);
        self.next += 1;
        let ends = [End::new(from, Standing::Known(id)), End::new(to, Standing::Unknown)];
        self.links.insert(ix, Link { ends, pipes: [Pipe::default(), Pipe::default()] });
        self.ends.insert((from, id), (ix, Side::Opener));
        ix
    }

    /// The machine at the other end knows the link from now on, by the number that is returned.
    pub(crate) fn accept(&mut self, ix: LinkIx) -> Option<LinkId> {
        let end = self.links.get_mut(&ix)?.end_mut(Side::Acceptor);
        // Apart from the numbers that machines choose for the links that they open.
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

    /// The ends that the machine on `host` knows.
    pub(crate) fn at(&self, host: HostIx) -> Vec<(LinkIx, Side)> {
        let of_host = (host, LinkId(0))..=(host, LinkId(u64::MAX));
        self.ends.range(of_host).map(|(_, end)| *end).collect()
    }

    /// How many links the machine on `host` has opened and not done with.
    pub(crate) fn opened_by(&self, host: HostIx) -> usize {
        self.at(host).iter().filter(|(_, side)| *side == Side::Opener).count()
    }

    /// The machine at this end has done with the link. Unless the other one knows it still, it is
    /// no more.
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

    /// What this side sends.
    pub(crate) fn pipe_mut(&mut self, side: Side) -> &mut Pipe {
        &mut self.pipes[side as usize]
    }

    pub(crate) fn host(&self, side: Side) -> HostIx {
        self.ends[side as usize].host
    }

    /// Whether the wish for the link has not arrived yet.
    pub(crate) fn is_unheard_of(&self) -> bool {
        let pipe = &self.pipes[Side::Opener as usize];
        matches!(pipe.queue.front(), Some((_, Piece::Open)))
    }
}

impl End {
    fn new(host: HostIx, standing: Standing) -> Self {
        Self { host, standing, unread: VecDeque::new(), unread_bytes: 0 }
    }

    /// A piece has come, to be read in its turn.
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
    /// `piece` can arrive at `at`, but not before what was sent before it.
    pub(crate) fn push(&mut self, at: Time, piece: Piece) {
        self.last = at.max(self.last);
        self.bytes += piece.bytes();
        self.queue.push_back((self.last, piece));
    }

    /// Whether so many bytes more would be too many.
    pub(crate) fn is_full_with(&self, bytes: usize, limit: usize) -> bool {
        self.bytes + bytes > limit
    }

    /// When the next piece could arrive.
    pub(crate) fn next_at(&self) -> Option<Time> {
        self.queue.front().map(|(at, _)| *at)
    }

    /// The next piece that could have arrived by `now`.
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

    /// An attempt has failed: the time of the next one, each pause twice the one before; `None` if
    /// it was tried for long enough.
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
    /// What the machines said of it themselves.
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

/// Links that one machine may have opened at a time: as many as a node's driver keeps.
pub(crate) const MAX_OPENED: usize = 14;
/// Bytes that a paused machine's host takes for it: more wait at the sender.
pub(crate) const RECEIVE_BYTES: usize = 64 << 10;
/// The pause before what got lost is sent again: TCP's shortest on Linux.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// The longest such pause. TCP's grows to minutes; nodes give a silent link up long before.
const LAST_PAUSE: Duration = Duration::from_millis(1600);
/// A link over which nothing gets for so long breaks.
const BREAK_AFTER: Duration = Duration::from_secs(12);

//! Connections between machines: ordered, reliable byte streams like those of TCP.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use carom_proto::Time;
use carom_proto::membership::link::{LinkEnd, LinkId};

use crate::ids::HostIx;

#[derive(Debug, Default)]
pub(crate) struct Connections {
    all: BTreeMap<ConnectionIx, Connection>,
    ends: BTreeMap<(HostIx, LinkId), (ConnectionIx, Side)>,
    next: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ConnectionIx(u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Side {
    Opener,
    Acceptor,
}

#[derive(Debug)]
pub(crate) struct Connection {
    ends: [End; 2],
    pipes: [Pipe; 2],
}

#[derive(Debug)]
pub(crate) struct End {
    pub(crate) host: HostIx,
    pub(crate) state: EndState,
    pub(crate) unread: VecDeque<Segment>,
    pub(crate) unread_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndState {
    Unknown,
    Known(LinkId),
    /// The end was closed by its machine, was notified of the connection's end, or has no machine.
    Gone,
}

#[derive(Debug, Default)]
pub(crate) struct Pipe {
    queue: VecDeque<(Time, Segment)>,
    bytes: usize,
    last: Time,
    failing_since: Option<Time>,
    pause: Duration,
    pub(crate) is_due: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    Open,
    Opened,
    Bytes(Vec<u8>),
    End(LinkEnd),
}

impl Connections {
    pub(crate) fn add(&mut self, from: HostIx, id: LinkId, to: HostIx) -> ConnectionIx {
        let ix = ConnectionIx(self.next);
        self.next += 1;
        let ends = [End::new(from, EndState::Known(id)), End::new(to, EndState::Unknown)];
        self.all.insert(ix, Connection { ends, pipes: [Pipe::default(), Pipe::default()] });
        self.ends.insert((from, id), (ix, Side::Opener));
        ix
    }

    pub(crate) fn accept(&mut self, ix: ConnectionIx) -> Option<LinkId> {
        let end = self.all.get_mut(&ix)?.end_mut(Side::Acceptor);
        // The number is disjoint from those that machines choose for the connections that they
        // open.
        let id = LinkId(1 << 32 | ix.0);
        end.state = EndState::Known(id);
        self.ends.insert((end.host, id), (ix, Side::Acceptor));
        Some(id)
    }

    pub(crate) fn get_mut(&mut self, ix: ConnectionIx) -> Option<&mut Connection> {
        self.all.get_mut(&ix)
    }

    pub(crate) fn find(&self, host: HostIx, id: LinkId) -> Option<(ConnectionIx, Side)> {
        self.ends.get(&(host, id)).copied()
    }

    pub(crate) fn at(&self, host: HostIx) -> Vec<(ConnectionIx, Side)> {
        let of_host = (host, LinkId(0))..=(host, LinkId(u64::MAX));
        self.ends.range(of_host).map(|(_, end)| *end).collect()
    }

    pub(crate) fn opened_by(&self, host: HostIx) -> usize {
        self.at(host).iter().filter(|(_, side)| *side == Side::Opener).count()
    }

    /// Closes this end, and removes the connection unless its other end is in use.
    pub(crate) fn end(&mut self, ix: ConnectionIx, side: Side) {
        let Some(connection) = self.all.get_mut(&ix) else { return };
        let end = connection.end_mut(side);
        if let EndState::Known(id) = end.state {
            self.ends.remove(&(end.host, id));
        }
        end.state = EndState::Gone;
        end.unread.clear();
        end.unread_bytes = 0;
        if !matches!(connection.end_mut(side.other()).state, EndState::Known(_)) {
            self.all.remove(&ix);
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

impl Connection {
    pub(crate) fn end_mut(&mut self, side: Side) -> &mut End {
        &mut self.ends[side as usize]
    }

    pub(crate) fn pipe_mut(&mut self, side: Side) -> &mut Pipe {
        &mut self.pipes[side as usize]
    }

    pub(crate) fn host(&self, side: Side) -> HostIx {
        self.ends[side as usize].host
    }

    pub(crate) fn is_unheard_of(&self) -> bool {
        let pipe = &self.pipes[Side::Opener as usize];
        matches!(pipe.queue.front(), Some((_, Segment::Open)))
    }
}

impl End {
    fn new(host: HostIx, state: EndState) -> Self {
        Self { host, state, unread: VecDeque::new(), unread_bytes: 0 }
    }

    pub(crate) fn receive(&mut self, segment: Segment) {
        self.unread_bytes += segment.bytes();
        self.unread.push_back(segment);
    }

    pub(crate) fn next_unread(&mut self) -> Option<Segment> {
        let segment = self.unread.pop_front()?;
        self.unread_bytes -= segment.bytes();
        Some(segment)
    }
}

impl Pipe {
    /// Adds a segment that can arrive at `at`, but not before the segments sent earlier.
    pub(crate) fn push(&mut self, at: Time, segment: Segment) {
        self.last = at.max(self.last);
        self.bytes += segment.bytes();
        self.queue.push_back((self.last, segment));
    }

    pub(crate) fn is_full_with(&self, bytes: usize, limit: usize) -> bool {
        self.bytes + bytes > limit
    }

    pub(crate) fn next_at(&self) -> Option<Time> {
        self.queue.front().map(|(at, _)| *at)
    }

    pub(crate) fn next_by(&mut self, now: Time) -> Option<Segment> {
        self.next_at().filter(|at| *at <= now)?;
        let (_, segment) = self.queue.pop_front()?;
        self.bytes -= segment.bytes();
        Some(segment)
    }

    pub(crate) fn clear(&mut self) {
        self.queue.clear();
        self.bytes = 0;
    }

    /// Records a failed attempt. Returns the time of the next attempt, after a pause that doubles
    /// up to [`LAST_PAUSE`], or `None` if attempts have failed for [`BREAK_AFTER`].
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

impl Segment {
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

/// Maximum number of open connections that one machine has initiated, as in a node's driver.
pub(crate) const MAX_OPENED: usize = 14;
/// Number of unread bytes at which a host stops receiving for its paused machine.
pub(crate) const RECEIVE_BYTES: usize = 64 << 10;
/// First pause before a retransmission: the minimum of TCP on Linux.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// Longest pause. TCP's grows to minutes, but nodes give up a silent connection earlier.
const LAST_PAUSE: Duration = Duration::from_millis(1600);
const BREAK_AFTER: Duration = Duration::from_secs(12);

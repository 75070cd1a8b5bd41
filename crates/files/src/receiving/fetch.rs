//! Fetches of pieces from the sources that the sender assigns.

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use crate::frame::{FetchFailure, Way};
use crate::limits::FETCHES_PER_RECEIVER;
use crate::peers::Asking;
use crate::progress::Event;
use crate::receiving::Shared;

/// Number of threads that fetch.
pub(crate) const FETCHERS: usize = 4;
/// Maximum number of peers remembered for sending wrong data.
const MAX_DISTRUSTED: usize = 4096;

/// Assigned fetch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fetch {
    pub(crate) piece: u32,
    /// Number of the source, given by the sender.
    pub(crate) source: u32,
    /// Address of the source; `None` is the sender itself.
    pub(crate) address: Option<SocketAddr>,
}

/// Queue of assigned fetches, and peers that are not used any more.
#[derive(Default)]
pub(crate) struct Fetches {
    waiting: VecDeque<Fetch>,
    distrusted: BTreeSet<SocketAddr>,
}

impl Fetches {
    /// Adds a fetch. Returns `false` if the sender has exceeded its limit.
    pub(crate) fn push(&mut self, fetch: Fetch) -> bool {
        let has_room = self.waiting.len() < 2 * FETCHES_PER_RECEIVER;
        if has_room {
            self.waiting.push_back(fetch);
        }
        has_room
    }

    pub(crate) fn pop(&mut self) -> Option<Fetch> {
        self.waiting.pop_front()
    }

    /// Drops all queued fetches, because the sender has forgotten them.
    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
    }

    fn distrust(&mut self, address: SocketAddr) {
        if self.distrusted.len() < MAX_DISTRUSTED {
            self.distrusted.insert(address);
        }
    }
}

/// Fetches pieces until the receiver ends.
pub(crate) fn fetch_all(shared: &Arc<Shared>) {
    let mut asking = Asking::default();
    while let Some((fetch, sender)) = shared.next_fetch() {
        fetch_one(shared, &mut asking, fetch, sender);
    }
}

fn fetch_one(shared: &Shared, asking: &mut Asking, fetch: Fetch, sender: SocketAddr) {
    let Fetch { piece, address, .. } = fetch;
    // A piece obtained by another path meanwhile is reported like any other piece.
    let Some(place) = shared.manifest().place(piece) else { return };
    if shared.store.has(piece) {
        return;
    }
    let from = address.unwrap_or(sender);
    let is_distrusted = address.is_some_and(|peer| shared.is_distrusted(&peer));
    let asked = match is_distrusted {
        true => Err(FetchFailure::Unreachable),
        false => asking.ask(from, shared.manifest().id(), piece, place.bytes),
    };
    let way = if address.is_some() { Way::Peer } else { Way::Sender };
    let failure = match asked {
        Ok(bytes) if shared.manifest().is_piece(piece, &bytes) => {
            shared.accept(way, piece, &bytes);
            return;
        }
        Ok(_) => FetchFailure::Wrong,
        Err(failure) => failure,
    };
    tracing::debug!(piece, %from, ?failure, "cannot fetch a piece");
    if failure == FetchFailure::Wrong {
        shared.report(Event::Wrong { piece, from: Some(from.to_string()) });
    }
    shared.fetch_failed(fetch, failure);
}

impl Shared {
    fn is_distrusted(&self, peer: &SocketAddr) -> bool {
        self.life().fetches.distrusted.contains(peer)
    }

    fn fetch_failed(&self, fetch: Fetch, why: FetchFailure) {
        let mut life = self.life();
        if why == FetchFailure::Wrong {
            life.received.wrong_pieces += 1;
            if let Some(peer) = fetch.address {
                life.fetches.distrust(peer);
            }
        }
        life.outbox.fetch_failed(fetch.piece, fetch.source, why);
        drop(life);
        self.changed.notify_all();
    }
}

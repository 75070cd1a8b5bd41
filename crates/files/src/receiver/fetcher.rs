use std::net::SocketAddr;
use std::sync::Arc;

use crate::frame::{FetchFailure, Way};
use crate::peers::Asking;
use crate::progress::Event;
use crate::receiver::fetches::Fetch;
use crate::receiver::shared::Shared;

pub(crate) const FETCHERS: usize = 4;

pub(crate) fn fetch_all(shared: &Arc<Shared>) {
    let mut asking = Asking::default();
    while let Some((fetch, sender)) = shared.next_fetch() {
        fetch_one(shared, &mut asking, fetch, sender);
    }
}

fn fetch_one(shared: &Shared, asking: &mut Asking, fetch: Fetch, sender: SocketAddr) {
    let Fetch { piece, address, .. } = fetch;
    // A piece that was obtained by another path in the meantime is reported like any other piece.
    let Some(place) = shared.manifest().place(piece) else { return };
    if shared.store.has(piece) {
        return;
    }
    let from = address.unwrap_or(sender);
    let is_distrusted = address.is_some_and(|peer| shared.life().fetches.is_distrusted(&peer));
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

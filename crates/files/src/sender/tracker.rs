use crate::frame::FromSender;
use crate::limits::FETCHES_PER_RECEIVER;
use crate::manifest::Manifest;
use crate::sender::roster::{Index, Roster, Source};

const LOOKED_AT: usize = 32;
/// Source number of the sender itself in a [`FromSender::Fetch`].
const SENDER: u32 = u32::MAX;

pub(crate) fn assign(
    roster: &mut Roster,
    manifest: &Manifest,
    per_peer: usize,
    from_sender: usize,
) {
    let mut room = roster.room(per_peer, from_sender);
    for index in 0..roster.rows.len() {
        let row = &roster.rows[index];
        if row.is_receiving() && row.wanted.count() as usize > row.fetching.len() {
            assign_to(roster, index, manifest, (per_peer, from_sender), &mut room);
        }
    }
}

fn assign_to(
    roster: &mut Roster,
    index: Index,
    manifest: &Manifest,
    (per_peer, from_sender): (usize, usize),
    room: &mut usize,
) {
    for _ in 0..LOOKED_AT {
        let row = &roster.rows[index];
        if row.fetching.len() >= FETCHES_PER_RECEIVER || *room == 0 {
            return;
        }
        let next = row.wanted.first_in(row.cursor).or_else(|| row.wanted.first_in(0));
        let Some(piece) = next else { return };
        let is_fetched = row.fetching.contains_key(&piece);
        roster.rows[index].cursor = piece + 1;
        if is_fetched {
            continue;
        }
        let Some((source, address)) = roster.source(index, piece, per_peer, from_sender) else {
            continue;
        };
        let number = if let Source::Peer(peer) = source { peer as u32 } else { SENDER };
        if !roster.rows[index].tell(FromSender::Fetch { piece, source: number, address }) {
            return;
        }
        let bytes = manifest.place(piece).map_or(0, |place| place.bytes);
        roster.fetch(index, piece, bytes, source);
        *room -= 1;
    }
}

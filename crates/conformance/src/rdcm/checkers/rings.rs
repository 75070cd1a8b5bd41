//! Theorem 1: each receiver is in one leaf ring and in at most one proxy ring, and therefore serves
//! at most two other receivers. The seats of all receivers match.

use std::collections::{BTreeMap, BTreeSet};

use carom_proto::NodeId;
use carom_proto::rdcm::packet::Seat;

use crate::findings::Findings;
use crate::rdcm::history::{FinalState, History};

const RULE: &str = "rings are closed, and no receiver serves more than two";

pub(super) fn check(history: &History, found: &mut Findings) {
    let Some(Ok(healed)) = &history.outcome else { return };
    let FinalState { receivers, places, .. } = healed;
    let mut rings: BTreeMap<u32, BTreeMap<NodeId, Seat>> = BTreeMap::new();
    for (node, place) in places {
        let seats = [Some(place.leaf), place.proxy];
        let mut names = BTreeSet::new();
        for seat in seats.into_iter().flatten() {
            rings.entry(seat.ring).or_default().insert(*node, seat);
            if !names.insert(seat.ring) {
                found.add(RULE, format!("node {node} has two seats in ring {}", seat.ring));
            }
        }
    }
    for node in receivers.iter().filter(|node| !places.contains_key(node)) {
        found.add(RULE, format!("node {node} has no place"));
    }
    for (ring, seats) in &rings {
        if !is_closed(seats) {
            found.add(RULE, format!("ring {ring} is not closed: {seats:?}"));
        }
    }
}

fn is_closed(seats: &BTreeMap<NodeId, Seat>) -> bool {
    let Some((first, _)) = seats.first_key_value() else { return true };
    let (mut node, mut seen) = (*first, BTreeSet::new());
    while let Some(seat) = seats.get(&node).filter(|_| seen.insert(node)) {
        let fits = seats.get(&seat.successor).is_some_and(|next| next.predecessor == node);
        if !fits {
            return false;
        }
        node = seat.successor;
    }
    node == *first && seen.len() == seats.len()
}

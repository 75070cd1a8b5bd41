//! Confirmation that everything sent is at all members, and reports of stability.

use super::RingNews;
use super::around::{Around, Timer};
use super::group::Group;
use super::names::Timestamp;
use crate::{Event, Safe, SeqNo};

/// Confirmation that the application waits for.
#[derive(Debug, Default)]
pub(super) struct Confirming {
    /// Last message that it covers.
    pub(super) up_to: Option<SeqNo>,
    /// Last round that assigned places to own packets.
    pub(super) last_place: Timestamp,
    /// Last round that assigned places to the covered messages, once all of them have places.
    pub(super) place: Option<Timestamp>,
}

impl Group {
    /// Requests a report once everything sent so far is at all members.
    pub(super) fn confirm(&mut self, cx: &mut Around<'_>) {
        self.confirming.up_to = Some(self.sending.last_message());
        self.confirming.place = None;
        self.advance(cx, None);
    }

    pub(super) fn answer_confirm(&mut self, cx: &mut Around<'_>) {
        let (Some(up_to), Some(ring)) = (self.confirming.up_to, &self.ring) else { return };
        let first = self.sending.unplaced_from();
        let is_placed = first.is_none_or(|first| first.is_after(up_to));
        if !is_placed {
            return;
        }
        // Later messages get places too. The confirmation must not wait for those.
        let place = *self.confirming.place.get_or_insert(self.confirming.last_place);
        if ring.settled() < place || ring.shortage().is_some() {
            return;
        }
        (self.confirming.up_to, self.confirming.place) = (None, None);
        let (group, members) = (cx.group, ring.others_since(place).count());
        let incomplete = Vec::new();
        cx.events.push_back(Event::Safe(Safe { group, up_to, members, incomplete }));
    }

    /// Reports the stable place if it has advanced, at intervals of at least `stable_every`.
    pub(super) fn tell_stable(&mut self, cx: &mut Around<'_>) {
        let Some(ring) = &mut self.ring else { return };
        // A ring without its quorum delivers nothing, and may be given up.
        if ring.shortage().is_some() || !ring.is_more_stable() {
            return;
        }
        if cx.now < self.stable_due {
            return cx.set_no_later(Timer::Stable, self.stable_due.since(cx.now));
        }
        let (up_to, members) = (ring.take_stable(), ring.view().len());
        self.stable_due = cx.now + cx.config.stable_every;
        cx.tell(RingNews::Stable { up_to, members });
    }
}

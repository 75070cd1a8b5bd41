//! Whether all that was sent, or delivered, is with all members.

use super::RingNews;
use super::around::{Around, Timer};
use super::group::Group;
use super::names::Timestamp;
use crate::{Event, Safe, SeqNo};

/// Whether somebody waits for all that was sent to be with all members.
#[derive(Debug, Default)]
pub(super) struct Confirming {
    /// The last message that it is about.
    pub(super) up_to: Option<SeqNo>,
    /// The last round that gave own packets places.
    pub(super) last_place: Timestamp,
    /// The last round that gave places to what it is about, once all that has one.
    pub(super) place: Option<Timestamp>,
}

impl Group {
    /// Asks to be told when all that was sent so far is with all members.
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
        // Later messages get places too, which must not be waited for.
        let place = *self.confirming.place.get_or_insert(self.confirming.last_place);
        if ring.settled() < place || ring.shortage().is_some() {
            return;
        }
        (self.confirming.up_to, self.confirming.place) = (None, None);
        let (group, members) = (cx.group, ring.others_since(place).count());
        let incomplete = Vec::new();
        cx.events.push_back(Event::Safe(Safe { group, up_to, members, incomplete }));
    }

    /// Tells up to where all members have what was delivered here, if that has advanced and was
    /// not told a moment ago.
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

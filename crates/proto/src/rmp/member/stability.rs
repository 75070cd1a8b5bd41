use alloc::vec::Vec;

use crate::ring::{RingNews, Timestamp};
use crate::rmp::context::{Context, Timer};
use crate::rmp::ring::Ring;
use crate::rmp::sender::Sender;
use crate::{Confirmed, Event, SeqNo, Time};

#[derive(Debug, Default)]
pub(super) struct Stability {
    up_to: Option<SeqNo>,
    pub(super) last_place: Timestamp,
    place: Option<Timestamp>,
    next_report_at: Time,
}

impl Stability {
    pub(super) fn confirm(&mut self, up_to: SeqNo) {
        (self.up_to, self.place) = (Some(up_to), None);
    }

    pub(super) fn on_formed(&mut self, at: Option<Timestamp>) {
        self.place = None;
        self.last_place = at.unwrap_or(self.last_place);
    }

    pub(super) fn report_confirmed(&mut self, cx: &mut Context<'_>, ring: &Ring, sender: &Sender) {
        let Some(up_to) = self.up_to else { return };
        if sender.unplaced_from().is_some_and(|first| !first.is_after(up_to)) {
            return;
        }
        // Later messages also get places. The confirmation must not wait for them.
        let place = *self.place.get_or_insert(self.last_place);
        if ring.standings().settled() < place || ring.shortage().is_some() {
            return;
        }
        (self.up_to, self.place) = (None, None);
        let (group, members) = (cx.group, ring.standings().others_since(place));
        let incomplete = Vec::new();
        cx.events.push_back(Event::Confirmed(Confirmed { group, up_to, members, incomplete }));
    }

    pub(super) fn report_stable(&mut self, cx: &mut Context<'_>, ring: &mut Ring) {
        // A ring without its quorum delivers nothing, and may be given up.
        let Some(up_to) = ring.new_stable().filter(|_| ring.shortage().is_none()) else { return };
        if cx.now < self.next_report_at {
            return cx.set_no_later(Timer::Stable, self.next_report_at.since(cx.now));
        }
        ring.on_stable_reported(up_to);
        self.next_report_at = cx.now + cx.config.stable_every;
        cx.report(RingNews::Stable { up_to, members: ring.view().len() });
    }
}

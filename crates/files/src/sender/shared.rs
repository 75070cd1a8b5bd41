use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::error::{SendError, SourceError};
use crate::frame::FromSender;
use crate::peers::Gate;
use crate::progress::Event;
use crate::scan::Content;
use crate::sender::options::SendOptions;
use crate::sender::roster::{Index, Ready, Roster};
use crate::sender::tracker;
use crate::summary::State;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Waiting,
    /// All pieces before this one were skipped, were sent, or are being sent.
    Streaming(u32),
    Over,
}

pub(super) struct Shared {
    pub(super) content: Content,
    pub(super) encoded: Bytes,
    pub(super) options: SendOptions,
    state: Mutex<TransferState>,
    changed: Condvar,
    pub(super) links: AtomicU64,
    /// Each connection holds a clone.
    pub(super) links_open: Arc<()>,
    pub(super) refused: Arc<AtomicU64>,
    pub(super) gate: Gate,
    ended: AtomicBool,
}

pub(super) struct TransferState {
    pub(super) roster: Roster,
    pub(super) phase: Phase,
    pub(super) broken: Option<SendError>,
    pub(super) over_at: Option<Instant>,
    pub(super) streamed_bytes: u64,
    pub(super) pieces_skipped: u32,
    pub(super) served_bytes: u64,
    is_dirty: bool,
}

const LOOK: Duration = Duration::from_millis(100);
/// Pause between two passes over all receivers, which combines events that are close together.
const PAUSE: Duration = Duration::from_millis(2);
/// Time after the end of the stream by which each receiver should have reported its last pieces.
const SETTLED_AFTER: Duration = Duration::from_secs(2);

impl TransferState {
    /// Returns `true` if the sender may serve missing pieces itself. Until then, a piece may still
    /// be in flight in the stream, or its receipt not yet reported.
    fn is_last_resort(&self) -> bool {
        let is_late = self.over_at.is_some_and(|over_at| over_at.elapsed() >= SETTLED_AFTER);
        self.phase == Phase::Over && (is_late || self.roster.is_settled())
    }
}

impl Shared {
    pub(super) fn new(content: Content, options: SendOptions) -> Self {
        let state = TransferState {
            roster: Roster::new(content.manifest.pieces()),
            phase: Phase::Waiting,
            broken: None,
            over_at: None,
            streamed_bytes: 0,
            pieces_skipped: 0,
            served_bytes: 0,
            is_dirty: false,
        };
        Self {
            encoded: content.manifest.encode().into(),
            content,
            options,
            state: Mutex::new(state),
            changed: Condvar::new(),
            links: AtomicU64::new(0),
            links_open: Arc::default(),
            refused: Arc::default(),
            gate: Gate::default(),
            ended: AtomicBool::new(false),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, TransferState> {
        self.state.lock().expect("no panic while the lock is held")
    }

    pub(super) fn wait<'a>(
        &self,
        state: MutexGuard<'a, TransferState>,
    ) -> MutexGuard<'a, TransferState> {
        let waited = self.changed.wait_timeout(state, LOOK);
        waited.expect("no panic while the lock is held").0
    }

    pub(super) fn wake(&self) {
        self.state().is_dirty = true;
        self.changed.notify_all();
    }

    pub(super) fn report(&self, event: Event) {
        self.options.reporter.report(event);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_full(&self) -> bool {
        let state = self.state();
        let rows = &state.roster.rows;
        let connected = rows.iter().filter(|row| row.is_receiving()).count();
        let taken = connected + state.roster.preparing.len();
        // Rows of departed receivers are kept, but their number is bounded as well.
        taken >= self.options.max_receivers || rows.len() >= 2 * self.options.max_receivers
    }

    pub(super) fn break_off(&self, error: SourceError) {
        self.state().broken.get_or_insert(error.into());
        self.wake();
    }

    pub(super) fn ready(&self, ready: Ready) -> Option<Index> {
        if self.has_ended() {
            return None;
        }
        let event = Event::ReceiverReady { name: ready.who.name.clone(), has: ready.have.count() };
        let manifest = &self.content.manifest;
        let mut state = self.state();
        let position = match state.phase {
            Phase::Waiting => 0,
            Phase::Streaming(position) => position,
            Phase::Over => manifest.pieces(),
        };
        let index = state.roster.ready(ready, manifest, position);
        if state.phase == Phase::Over {
            state.roster.rows[index].tell(FromSender::StreamOver);
        }
        drop(state);
        self.report(event);
        self.wake();
        Some(index)
    }

    pub(super) fn lost(&self, index: Index, link: u64) {
        let mut state = self.state();
        if state.roster.lost(index, link) {
            let told = &state.roster.rows[index].told;
            if told.state == State::Gone {
                self.report(Event::ReceiverGone { name: told.name.clone() });
            }
        }
        drop(state);
        self.wake();
    }

    pub(super) fn failed_early(&self, link: u64, reason: String) {
        if let Some(name) = self.state().roster.failed_early(link, &reason) {
            self.report(Event::ReceiverFailed { name, reason });
        }
        self.wake();
    }

    pub(super) fn lost_early(&self, link: u64) {
        let lost = self.state().roster.lost_early(link);
        // At the end of the transfer, every connection is lost.
        if let Some(name) = lost.filter(|_| !self.has_ended()) {
            self.report(Event::ReceiverGone { name });
        }
        self.wake();
    }

    /// Fails the receivers that have been preparing for too long, even if they send keepalives.
    pub(super) fn give_up_overdue(&self, state: &mut TransferState) {
        let reason = self.overdue();
        for name in state.roster.give_up_overdue(self.disk_patience(), &reason) {
            self.report(Event::ReceiverFailed { name, reason: reason.clone() });
        }
    }

    pub(super) fn overdue(&self) -> String {
        format!("not ready within {:?}", self.disk_patience())
    }

    pub(super) fn track(&self) {
        while !self.has_ended() {
            let mut state = self.state();
            if !state.is_dirty {
                state = self.wait(state);
            }
            state.is_dirty = false;
            let is_last_resort = state.is_last_resort();
            let from_sender = if is_last_resort { self.options.fetches_from_sender } else { 0 };
            let began = Instant::now();
            let (manifest, per_peer) = (&self.content.manifest, self.options.fetches_per_peer);
            tracker::assign(&mut state.roster, manifest, per_peer, from_sender);
            drop(state);
            // Leaves the lock to other threads for at least as long as this pass held it.
            std::thread::sleep(PAUSE.max(began.elapsed()));
        }
    }

    /// Sends `last` to all receivers, and waits for at most `SIGN_OF_LIFE` until they have read it.
    pub(super) fn say_goodbye(&self, last: &FromSender) {
        let deadline = Instant::now() + crate::limits::SIGN_OF_LIFE;
        let mut state = self.state();
        for row in &mut state.roster.rows {
            row.tell(last.clone());
            row.hang_up();
        }
        self.end();
        // A connection ends when the receiver has read everything and closed its side.
        while Arc::strong_count(&self.links_open) > 1 && Instant::now() < deadline {
            state = self.wait(state);
        }
    }
}

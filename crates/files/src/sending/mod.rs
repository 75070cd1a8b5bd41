//! Sender of a transfer.

mod link;
mod options;
mod ranges;
mod roster;
mod stream;
mod tracker;
mod who;

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;

pub use options::{SendOptions, StartWhen};
use roster::{Index, Ready, Roster};

use crate::door::Door;
use crate::error::{SendError, SourceError};
use crate::frame::{FromSender, plain_text};
use crate::limits::PIECE_CONNECTIONS;
use crate::manifest::Manifest;
use crate::offer::Offer;
use crate::peers::{Gate, small_thread};
use crate::progress::Event;
use crate::scan::{Content, Findings, Source};
use crate::sink::BlockSink;
use crate::summary::{ReceiverRow, State, Summary};

/// Transfer that is offered, and sent by [`run`](Self::run).
///
/// The application multicasts [`offer`](Self::offer) repeatedly until `run` returns. If the sender
/// is dropped before `run` has finished, its receivers treat it as lost. They wait for a while, and
/// resume when the same content is offered again.
pub struct Sending {
    shared: Arc<Shared>,
    offer: Offer,
    /// Dropped before the connections are closed, so that no new ones are accepted.
    listening: Option<Door>,
    tracking: Option<JoinHandle<()>>,
}

/// Handle for querying and canceling a transfer from other threads.
#[derive(Clone)]
pub struct SendHandle {
    shared: Arc<Shared>,
}

/// Phase of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Waiting for receivers.
    Waiting,
    /// Streaming; all pieces before this one are done.
    Streaming(u32),
    /// The stream has ended.
    Over,
}

/// State shared by all threads of a sender.
struct Shared {
    content: Content,
    /// Encoded manifest.
    encoded: Bytes,
    options: SendOptions,
    state: Mutex<TransferState>,
    changed: Condvar,
    links: AtomicU64,
    links_open: AtomicUsize,
    /// Number of connections closed before they were served.
    refused: Arc<AtomicU64>,
    gate: Gate,
    ended: AtomicBool,
}

struct TransferState {
    roster: Roster,
    phase: Phase,
    /// Error that ends the transfer.
    broken: Option<SendError>,
    over_at: Option<Instant>,
    /// Bytes of file data that were multicast.
    streamed_bytes: u64,
    pieces_skipped: u32,
    /// Bytes of pieces served over TCP.
    served_bytes: u64,
    /// `true` if something has changed since the last pass over all receivers.
    is_dirty: bool,
}

/// Maximum interval between two checks of a waiting thread.
const LOOK: Duration = Duration::from_millis(100);
/// Pause between two passes over all receivers, which combines events that are close together.
const PAUSE: Duration = Duration::from_millis(2);
/// Time after the end of the stream by which each receiver should have reported its last pieces.
const SETTLED_AFTER: Duration = Duration::from_secs(2);

impl Sending {
    /// Reads the sources and starts to listen for receivers.
    ///
    /// # Errors
    /// A source cannot be read or sent, the address cannot be bound, or the options are invalid.
    pub fn open(sources: Vec<Source>, options: SendOptions) -> Result<Self, SendError> {
        options.check()?;
        let (spool, skips) = (options.spool.as_deref(), options.skip_unsendable);
        let content = Content::scan(sources, spool, skips, &options.reporter)?;
        let address = options.listen;
        let listener = TcpListener::bind(address)
            .and_then(|listener| Ok((listener.local_addr()?, listener)))
            .map_err(|error| SendError::Listen { address, error });
        let (address, listener) = listener?;
        let offer = offer(&content, address, &options.advertise);
        let most = options.max_receivers + PIECE_CONNECTIONS;
        let shared = Arc::new(Shared::new(content, options));
        let serving = Arc::clone(&shared);
        let serve = move |stream, from, opening| link::serve(&serving, stream, from, opening);
        let refused = Arc::clone(&shared.refused);
        let listening = Door::open(listener, most, refused, serve).map_err(SendError::Start)?;
        let tracked = Arc::clone(&shared);
        let tracking = small_thread("carom-tracker", move || tracked.track());
        let tracking = Some(tracking.map_err(SendError::Start)?);
        Ok(Self { shared, offer, listening: Some(listening), tracking })
    }

    /// Returns the offer to announce to receivers.
    pub fn offer(&self) -> &Offer {
        &self.offer
    }

    /// Returns the parts of the sources that are not sent unchanged.
    pub fn findings(&self) -> &Findings {
        &self.shared.content.findings
    }

    /// Returns a handle for use from other threads.
    pub fn handle(&self) -> SendHandle {
        SendHandle { shared: Arc::clone(&self.shared) }
    }

    /// Waits for receivers, sends, and waits until each receiver has finished, has failed, or is
    /// gone for longer than `patience`.
    ///
    /// # Errors
    /// Returns the reason if the transfer ends for all receivers, which are notified. The failure
    /// of a single receiver is not an error but is reported in the summary:
    /// [`Summary::is_success`].
    pub fn run(mut self, sink: &mut dyn BlockSink) -> Result<Summary, SendError> {
        let ran = self.shared.run(sink);
        // Receivers that connect from now on are too late.
        self.listening = None;
        let last = match &ran {
            Ok(_) => FromSender::Done,
            Err(error) => FromSender::Aborted {
                reason: plain_text(&error.to_string()),
                discard: matches!(error, SendError::Source(SourceError::Changed(_))),
            },
        };
        self.shared.say_goodbye(&last);
        ran
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        self.listening = None;
        self.shared.wake();
        if let Some(tracking) = self.tracking.take() {
            // A panic of the thread is a bug, and was already reported.
            let _ = tracking.join();
        }
        let mut state = self.shared.state();
        (0..state.roster.rows().len()).for_each(|index| state.roster.row_mut(index).cut());
    }
}

impl SendHandle {
    /// Returns the rows of all receivers so far.
    pub fn receivers(&self) -> Vec<ReceiverRow> {
        self.shared.state().roster.rows().iter().map(|row| row.told.clone()).collect()
    }

    /// Returns `true` if every receiver that is connected and was heard lately has all pieces.
    /// Waiting for the rest of the stream is then useless, because the other receivers fetch what
    /// they lack.
    pub fn is_served(&self) -> bool {
        !self.shared.state().roster.is_anybody_lacking()
    }

    /// Returns the time since any connected receiver with missing pieces obtained one;
    /// [`Duration::MAX`] if there is no such receiver. If the whole stream has been sent and this
    /// time grows, the missing pieces can be fetched sooner than the stream delivers them.
    pub fn still_for(&self) -> Duration {
        self.shared.state().roster.still_for()
    }

    /// Ends the transfer with [`SendError::Cancelled`]. Receivers keep the pieces that they have.
    pub fn cancel(&self) {
        self.shared.state().broken.get_or_insert(SendError::Cancelled);
        self.shared.wake();
    }
}

impl TransferState {
    /// Returns `true` if pieces that no receiver has may be fetched from the sender. Earlier, such
    /// a piece may still be in flight in the stream, or be received but not reported yet.
    fn is_last_resort(&self) -> bool {
        let is_late = self.over_at.is_some_and(|over_at| over_at.elapsed() >= SETTLED_AFTER);
        self.phase == Phase::Over && (is_late || self.roster.is_settled())
    }
}

impl Shared {
    fn new(content: Content, options: SendOptions) -> Self {
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
            links_open: AtomicUsize::new(0),
            refused: Arc::default(),
            gate: Gate::default(),
            ended: AtomicBool::new(false),
        }
    }

    fn state(&self) -> MutexGuard<'_, TransferState> {
        self.state.lock().expect("no panic while the lock is held")
    }

    /// Waits until something changes, for at most [`LOOK`].
    fn wait<'a>(&self, state: MutexGuard<'a, TransferState>) -> MutexGuard<'a, TransferState> {
        let waited = self.changed.wait_timeout(state, LOOK);
        waited.expect("no panic while the lock is held").0
    }

    /// Wakes up threads that wait for a change.
    fn wake(&self) {
        self.state().is_dirty = true;
        self.changed.notify_all();
    }

    fn report(&self, event: Event) {
        self.options.reporter.report(event);
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    fn next_link(&self) -> u64 {
        self.links.fetch_add(1, Ordering::Relaxed)
    }

    fn is_full(&self) -> bool {
        let state = self.state();
        let rows = state.roster.rows();
        let connected = rows.iter().filter(|row| row.is_receiving()).count();
        let taken = connected + state.roster.preparing();
        // Rows of departed receivers are kept, but their number is bounded as well.
        taken >= self.options.max_receivers || rows.len() >= 2 * self.options.max_receivers
    }

    /// Ends the transfer for all receivers, because a source cannot be read as before.
    fn break_off(&self, error: SourceError) {
        self.state().broken.get_or_insert(error.into());
        self.wake();
    }

    /// Adds a receiver that is ready. Returns `None` if the transfer is over.
    fn ready(&self, ready: Ready) -> Option<Index> {
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
            state.roster.row(index).tell(FromSender::StreamOver);
        }
        drop(state);
        self.report(event);
        self.wake();
        Some(index)
    }

    fn lost(&self, index: Index, link: u64) {
        let mut state = self.state();
        if state.roster.lost(index, link) {
            let told = &state.roster.row(index).told;
            if told.state == State::Gone {
                self.report(Event::ReceiverGone { name: told.name.clone() });
            }
        }
        drop(state);
        self.wake();
    }

    fn failed_early(&self, link: u64, reason: String) {
        if let Some(name) = self.state().roster.failed_early(link, &reason) {
            self.report(Event::ReceiverFailed { name, reason });
        }
        self.wake();
    }

    fn lost_early(&self, link: u64) {
        let lost = self.state().roster.lost_early(link);
        // At the end of the transfer every connection is lost.
        if let Some(name) = lost.filter(|_| !self.has_ended()) {
            self.report(Event::ReceiverGone { name });
        }
        self.wake();
    }

    /// Gives up receivers that have been preparing for too long, even if they send keepalives.
    fn give_up_overdue(&self, state: &mut TransferState) {
        let reason = self.overdue();
        for name in state.roster.give_up_overdue(self.disk_patience(), &reason) {
            self.report(Event::ReceiverFailed { name, reason: reason.clone() });
        }
    }

    /// Returns the reason for giving up a receiver that has been preparing for too long.
    fn overdue(&self) -> String {
        format!("not ready within {:?}", self.disk_patience())
    }

    /// Assigns fetches to receivers until the transfer ends.
    fn track(&self) {
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

    /// Sends the last frame to all receivers, and waits until it is written, for at most
    /// [`SIGN_OF_LIFE`](crate::limits::SIGN_OF_LIFE).
    fn say_goodbye(&self, last: &FromSender) {
        let deadline = Instant::now() + crate::limits::SIGN_OF_LIFE;
        let mut state = self.state();
        for index in 0..state.roster.rows().len() {
            state.roster.row(index).tell(last.clone());
            state.roster.row_mut(index).hang_up();
        }
        self.ended.store(true, Ordering::Relaxed);
        // A connection ends when the receiver has read everything and closed its side.
        while self.links_open.load(Ordering::Relaxed) > 0 && Instant::now() < deadline {
            state = self.wait(state);
        }
    }
}

fn offer(content: &Content, address: SocketAddr, advertise: &[SocketAddr]) -> Offer {
    let mut addresses = advertise.to_vec();
    if addresses.is_empty() {
        addresses.push(address);
    }
    let unset = addresses.iter_mut().filter(|address| address.port() == 0);
    unset.for_each(|unset| unset.set_port(address.port()));
    let manifest = &content.manifest;
    Offer {
        id: manifest.id(),
        addresses,
        name: plain_text(&name_of(manifest)),
        total_bytes: manifest.total_bytes(),
        entries: manifest.entries().len() as u32,
    }
}

/// Returns the name in the offer: the first source, with the number of the others.
fn name_of(manifest: &Manifest) -> String {
    let roots = manifest.entries().iter().filter(|entry| entry.path.is_root()).count();
    let first = &manifest.entries()[0].path;
    match roots {
        1 => first.to_string(),
        _ => format!("{first} and {} more", roots - 1),
    }
}

//! The sender: what it offers, what it multicasts, and who has got what.

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

/// Something that is offered, and sent when [`run`](Self::run) is called.
///
/// The offer is made known by the caller: it multicasts [`offer`](Self::offer), again and again,
/// until `run` returns. Dropped without having run to its end, the sender is gone for its
/// receivers; they wait, and go on when the same content is offered again.
pub struct Sending {
    shared: Arc<Shared>,
    offer: Offer,
    /// Taken down in this order: no new connections, then those that are there.
    listening: Option<Door>,
    tracking: Option<JoinHandle<()>>,
}

/// A way to ask about a transfer, and to end it, from other threads.
#[derive(Clone)]
pub struct SendHandle {
    shared: Arc<Shared>,
}

/// How far a transfer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It waits for receivers.
    Waiting,
    /// The stream is at this piece; those before it are behind.
    Streaming(u32),
    /// The stream is over.
    Over,
}

/// What all threads of a sender know.
struct Shared {
    content: Content,
    /// The manifest as it travels.
    encoded: Bytes,
    options: SendOptions,
    state: Mutex<TransferState>,
    changed: Condvar,
    links: AtomicU64,
    links_open: AtomicUsize,
    /// Connections that were closed before they were served.
    refused: Arc<AtomicU64>,
    gate: Gate,
    ended: AtomicBool,
}

struct TransferState {
    roster: Roster,
    phase: Phase,
    /// Why the transfer cannot go on.
    broken: Option<SendError>,
    over_at: Option<Instant>,
    /// Bytes of files that were multicast.
    streamed_bytes: u64,
    pieces_skipped: u32,
    /// Bytes of pieces that were given over TCP.
    served_bytes: u64,
    /// Something has happened since the last pass over all receivers.
    is_dirty: bool,
}

/// How often those who wait look at the time, at least.
const LOOK: Duration = Duration::from_millis(100);
/// Many things that happen at once are one pass over all receivers.
const PAUSE: Duration = Duration::from_millis(2);
/// So long after the end of the stream everybody should have said what came by it.
const SETTLED_AFTER: Duration = Duration::from_secs(2);

impl Sending {
    /// Reads the sources, listens for receivers, and can be offered.
    ///
    /// # Errors
    /// If a source cannot be read or sent, or the address not be listened at.
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

    /// What to make known to receivers.
    pub fn offer(&self) -> &Offer {
        &self.offer
    }

    /// What is not sent as it is.
    pub fn findings(&self) -> &Findings {
        &self.shared.content.findings
    }

    /// A way to ask about the transfer from other threads.
    pub fn handle(&self) -> SendHandle {
        SendHandle { shared: Arc::clone(&self.shared) }
    }

    /// Waits for receivers, sends, and waits until each has everything, has failed or is gone for
    /// longer than the patience.
    ///
    /// # Errors
    /// What ends the transfer for everybody; all receivers are told. What happens to a single
    /// receiver is no error, but in the summary: [`Summary::is_success`].
    pub fn run(mut self, sink: &mut dyn BlockSink) -> Result<Summary, SendError> {
        let ran = self.shared.run(sink);
        // Who comes now comes too late.
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
            // It cannot panic but by our own bug, which it has reported then.
            let _ = tracking.join();
        }
        let mut state = self.shared.state();
        (0..state.roster.rows().len()).for_each(|index| state.roster.row_mut(index).cut());
    }
}

impl SendHandle {
    /// All receivers so far.
    pub fn receivers(&self) -> Vec<ReceiverRow> {
        self.shared.state().roster.rows().iter().map(|row| row.told.clone()).collect()
    }

    /// Whether the stream need not be waited for: every receiver that is connected and was heard
    /// lately has all pieces. Those who were not heard fetch what they lack.
    pub fn is_served(&self) -> bool {
        !self.shared.state().roster.is_anybody_lacking()
    }

    /// How long no receiver that is connected and lacks pieces has got one: once all of the stream
    /// is sent, what they lack is fetched sooner than it comes by the stream.
    pub fn still_for(&self) -> Duration {
        self.shared.state().roster.still_for()
    }

    /// Ends the transfer with [`SendError::Cancelled`]. Receivers keep what they have.
    pub fn cancel(&self) {
        self.shared.state().broken.get_or_insert(SendError::Cancelled);
        self.shared.wake();
    }
}

impl TransferState {
    /// Whether what nobody has is to be had from the sender. Before, it may be on its way to most,
    /// or they have it and have not said so yet.
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
        self.state.lock().expect("nobody panics while holding the state")
    }

    /// Waits a while for something to happen.
    fn wait<'a>(&self, state: MutexGuard<'a, TransferState>) -> MutexGuard<'a, TransferState> {
        let waited = self.changed.wait_timeout(state, LOOK);
        waited.expect("nobody panics while holding the state").0
    }

    /// Something has happened that others may wait for.
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
        // Those who came and went are remembered, but not without end either.
        taken >= self.options.max_receivers || rows.len() >= 2 * self.options.max_receivers
    }

    /// The source is not what it was: the transfer ends for everybody.
    fn break_off(&self, error: SourceError) {
        self.state().broken.get_or_insert(error.into());
        self.wake();
    }

    /// Takes a receiver that can begin; `None` if the transfer is over.
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
        // At the end of the transfer all are.
        if let Some(name) = lost.filter(|_| !self.has_ended()) {
            self.report(Event::ReceiverGone { name });
        }
        self.wake();
    }

    /// Gives up those who have not become ready for too long, whether they say that they live or
    /// nothing.
    fn give_up_overdue(&self, state: &mut TransferState) {
        let reason = self.overdue();
        for name in state.roster.give_up_overdue(self.disk_patience(), &reason) {
            self.report(Event::ReceiverFailed { name, reason: reason.clone() });
        }
    }

    /// What is said of one that has not become ready for too long.
    fn overdue(&self) -> String {
        format!("it has not become ready for {:?}", self.disk_patience())
    }

    /// Tells receivers what to fetch, until the transfer ends.
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
            // Others need the state as well.
            std::thread::sleep(PAUSE.max(began.elapsed()));
        }
    }

    /// The last word to all, and time for it to be written.
    fn say_goodbye(&self, last: &FromSender) {
        let deadline = Instant::now() + crate::limits::SIGN_OF_LIFE;
        let mut state = self.state();
        for index in 0..state.roster.rows().len() {
            state.roster.row(index).tell(last.clone());
            state.roster.row_mut(index).hang_up();
        }
        self.ended.store(true, Ordering::Relaxed);
        // Each connection ends when the receiver has read the end of it and closed its side.
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

/// What people are told that is sent: the first path's name, and how many others there are.
fn name_of(manifest: &Manifest) -> String {
    let roots = manifest.entries().iter().filter(|entry| entry.path.is_root()).count();
    let first = &manifest.entries()[0].path;
    match roots {
        1 => first.to_string(),
        _ => format!("{first} and {} more", roots - 1),
    }
}

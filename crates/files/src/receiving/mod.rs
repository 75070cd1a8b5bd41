//! Receiver of a transfer.

mod assembly;
mod direct;
mod fetch;
mod folder;
mod journal;
mod kept;
mod life;
mod link;
mod options;
mod outbox;
mod publish;
mod recover;
mod stock;
mod store;

use std::net::{Ipv6Addr, Shutdown, SocketAddr, TcpListener};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use assembly::{Assembly, Put};
use bytes::Bytes;
use fetch::{FETCHERS, Fetch};
pub use kept::{Kept, kept, try_writing};
use life::Life;
use link::Greeted;
pub use options::ReceiveOptions;
pub use recover::recover;
use store::Store;

use crate::block::Block;
use crate::door::Door;
use crate::error::{ReceiveError, plain};
use crate::frame::{self, FromReceiver, Opening, Way};
use crate::id::TransferId;
use crate::limits::{PIECE_CONNECTIONS, SIGN_OF_LIFE};
use crate::manifest::Manifest;
use crate::offer::Offer;
use crate::peers::{Gate, Pieces, give, small_thread};
use crate::progress::Event;
use crate::summary::Received;

/// Transfer that is being received into a directory.
///
/// The application passes it the messages of the multicast stream ([`on_block`](Self::on_block)),
/// and further offers of the same transfer, because a restarted sender listens at another address
/// ([`on_offer`](Self::on_offer)). Everything else runs in threads of its own. [`wait`](Self::wait)
/// returns the result.
///
/// A receiver that is dropped early keeps its pieces. Another one into the same directory resumes
/// with them.
pub struct Receiving {
    shared: Arc<Shared>,
    finishing: Option<JoinHandle<()>>,
    /// Serves pieces to other receivers until it is dropped.
    _listening: Door,
}

/// State shared by all threads of a receiver.
pub(crate) struct Shared {
    store: Store,
    options: ReceiveOptions,
    piece_port: u16,
    assembly: Mutex<Assembly>,
    gate: Gate,
    life: Mutex<Life>,
    changed: Condvar,
}

impl Receiving {
    /// Connects to the sender of an offer, prepares the directory, and joins the transfer.
    ///
    /// Data of an earlier attempt is read and verified first, which may take long.
    ///
    /// # Errors
    /// The sender cannot be reached, the offered content is refused, or it cannot be written. The
    /// error is reported to the sender if it is reachable.
    pub fn start(offer: &Offer, options: ReceiveOptions) -> Result<Self, ReceiveError> {
        let greeted = link::greet(&offer.addresses, offer.id, &options, false)?;
        let told = |error: ReceiveError| {
            link::tell_failure(&greeted.stream, &error);
            error
        };
        let listener = listen(options.listen, greeted.address).map_err(told)?;
        let (listener, piece_port) = listener;
        let store = open_store(&greeted, offer.id, &options).map_err(told)?;
        let shared = Arc::new(Shared::new(store, options, offer, piece_port));
        let start = |error: std::io::Error| ReceiveError::Start(plain(&error));
        let serving = Arc::clone(&shared);
        let serve = move |stream, _, opening| serve_piece(&serving, &stream, opening);
        let refused = Arc::default();
        let listening = Door::open(listener, PIECE_CONNECTIONS, refused, serve).map_err(start)?;
        shared.link(&greeted)?;
        let finishing = std::thread::Builder::new().name("carom-finish".into());
        let finisher = Arc::clone(&shared);
        let finishing = finishing.spawn(move || finisher.finish()).map_err(start)?;
        let receiving = Self { shared, finishing: Some(finishing), _listening: listening };
        receiving.start_threads(greeted).map_err(start)?;
        Ok(receiving)
    }

    fn start_threads(&self, greeted: Greeted) -> std::io::Result<()> {
        let shared = Arc::clone(&self.shared);
        small_thread("carom-follow", move || link::follow(&shared, greeted.stream))?;
        let shared = Arc::clone(&self.shared);
        small_thread("carom-tell", move || link::tell_all(&shared))?;
        for _ in 0..FETCHERS {
            let shared = Arc::clone(&self.shared);
            small_thread("carom-fetch", move || fetch::fetch_all(&shared))?;
        }
        Ok(())
    }

    /// Handles a message of the multicast stream. Messages that are not blocks of this transfer are
    /// ignored and counted.
    ///
    /// A piece that the message completes is verified and written before this returns. A slow disk
    /// therefore slows down the caller, and flow control of the stream propagates this to the
    /// sender.
    pub fn on_block(&self, message: Bytes) {
        self.shared.on_block(&message);
    }

    /// Updates the sender's addresses from an offer. Offers of other transfers are ignored.
    pub fn on_offer(&self, offer: &Offer) {
        if offer.id == self.id() {
            self.shared.life().addresses.clone_from(&offer.addresses);
        }
    }

    /// Returns the transfer id.
    pub fn id(&self) -> TransferId {
        self.shared.manifest().id()
    }

    /// Returns the manifest.
    pub fn manifest(&self) -> &Manifest {
        self.shared.manifest()
    }

    /// Returns the number of pieces that are verified and written, and their total size in bytes.
    pub fn progress(&self) -> (u32, u64) {
        (self.shared.store.have().count(), self.shared.store.verified_bytes())
    }

    /// Waits until all entries have their final names and the sender has ended the transfer, or
    /// until the transfer has failed. Until the sender ends the transfer, other receivers can fetch
    /// from this one.
    ///
    /// # Errors
    /// Returns the reason of the failure.
    pub fn wait(&self) -> Result<Received, ReceiveError> {
        let mut life = self.shared.life();
        loop {
            if let Some(ended) = &life.ended {
                return ended.clone().map(|()| life.received.clone());
            }
            life = self.shared.changed.wait(life).expect("no panic while the lock is held");
        }
    }

    /// Ends the receiver from another thread, like dropping it. If all pieces are received, the
    /// entries still get their final names.
    pub fn stop(&self) {
        self.shared.stop();
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        self.shared.stop();
        if let Some(finishing) = self.finishing.take() {
            // A panic of the thread is a bug, and was already reported.
            let _ = finishing.join();
        }
        self.shared.store.close();
    }
}

impl Pieces for Shared {
    fn piece(&self, id: &TransferId, piece: u32) -> Option<Bytes> {
        let is_stopped = matches!(self.life().ended, Some(Err(_)));
        if *id != self.manifest().id() || is_stopped {
            return None;
        }
        self.store.read(piece)
    }
}

impl Shared {
    fn new(store: Store, options: ReceiveOptions, offer: &Offer, piece_port: u16) -> Self {
        let manifest = &store.manifest;
        let most = (options.assembly_bytes / manifest.piece_bytes() as usize).max(2);
        let assembly = Mutex::new(Assembly::new(manifest.pieces(), most));
        let life = Life::new(store.have(), store.verified_bytes(), offer.addresses.clone());
        let (life, changed) = (Mutex::new(life), Condvar::new());
        let gate = Gate::default();
        Self { store, options, piece_port, assembly, gate, life, changed }
    }

    fn manifest(&self) -> &Manifest {
        &self.store.manifest
    }

    fn life(&self) -> MutexGuard<'_, Life> {
        self.life.lock().expect("no panic while the lock is held")
    }

    fn assembly(&self) -> MutexGuard<'_, Assembly> {
        self.assembly.lock().expect("no panic while the lock is held")
    }

    fn report(&self, event: Event) {
        self.options.reporter.report(event);
    }

    fn on_block(&self, message: &Bytes) {
        let block = Block::decode(message).filter(|block| block.tag == self.manifest().id().tag());
        let place = block.as_ref().and_then(|block| self.manifest().place(block.piece));
        let (Some(block), Some(place)) = (block, place) else {
            self.life().received.blocks_foreign += 1;
            return;
        };
        let mut life = self.life();
        life.block_at = Instant::now();
        if life.known.contains(block.piece) || life.is_ending() {
            life.received.blocks_duplicate += 1;
            return;
        }
        drop(life);
        let put = self.assembly().put(block.piece, place.bytes, block.offset, &block.data);
        match put {
            Put::Kept(None) => {}
            Put::Kept(Some(given_up)) => self.missed(given_up, false),
            Put::Duplicate => self.life().received.blocks_duplicate += 1,
            Put::Dropped => self.life().received.blocks_dropped += 1,
            Put::Nonsense => self.life().received.blocks_foreign += 1,
            Put::Complete(bytes) if self.manifest().is_piece(block.piece, &bytes) => {
                self.accept(Way::Stream, block.piece, &bytes);
                self.assembly().take_back(bytes);
            }
            Put::Complete(_) => {
                self.report(Event::Wrong { piece: block.piece, from: None });
                self.assembly().give_up(block.piece);
                self.missed(block.piece, true);
            }
        }
    }

    /// Reports to the sender that the stream will not deliver a piece.
    fn missed(&self, piece: u32, is_wrong: bool) {
        let mut life = self.life();
        life.received.wrong_pieces += u64::from(is_wrong);
        life.outbox.missed(piece, is_wrong);
        drop(life);
        self.changed.notify_all();
    }

    /// Writes a verified piece.
    fn accept(&self, way: Way, piece: u32, bytes: &[u8]) {
        match self.store.write(piece, bytes) {
            Ok(_) => {}
            Err(error) => return self.fail(error),
        }
        if way != Way::Stream {
            self.assembly().forget(piece);
        }
        self.life().accept(way, piece, bytes.len() as u64);
        let of = self.manifest().data_bytes();
        self.report(Event::Verified { bytes: self.store.verified_bytes(), of });
        self.changed.notify_all();
    }

    /// Ends the receiver with an error, unless all pieces are received.
    fn fail(&self, error: ReceiveError) {
        let mut life = self.life();
        if !life.is_complete() {
            life.end(Err(error));
            self.store.close();
        }
        drop(life);
        self.changed.notify_all();
    }

    /// Handles the end of the transfer for all receivers, without success.
    fn aborted(&self, reason: String, discard: bool) {
        // The lock is held throughout. The last piece must not arrive in between, and a caller that
        // gets the result may exit at once, before the data is removed.
        let mut life = self.life();
        if !life.is_complete() && !life.is_ending() {
            let error = match discard {
                true => {
                    self.store.discard();
                    ReceiveError::Discarded(reason)
                }
                false => {
                    self.store.close();
                    ReceiveError::Aborted(reason)
                }
            };
            life.end(Err(error));
        }
        drop(life);
        self.changed.notify_all();
    }

    /// Handles the regular end of the transfer.
    fn done(&self) {
        let mut life = self.life();
        if !life.is_complete() {
            life.end(Err(ReceiveError::Aborted("it did not wait for this receiver".to_owned())));
        }
        life.received.sender_knows = life.is_complete();
        drop(life);
        self.changed.notify_all();
    }

    fn stream_is_over(&self) {
        self.life().over_at = Some(Instant::now());
        self.changed.notify_all();
    }

    /// Reports the received pieces as the first frame of a new connection.
    fn link(&self, greeted: &Greeted) -> Result<(), ReceiveError> {
        let known = self.life().begin_link();
        self.assembly().restart();
        let (has, of) = (known.count(), known.pieces());
        let ready = FromReceiver::Ready {
            key: self.store.key(),
            piece_port: self.piece_port,
            have: known.to_bytes(),
        };
        let lost = |error: std::io::Error| ReceiveError::Unreachable(plain(&error));
        frame::write(&mut &greeted.stream, &ready).map_err(lost)?;
        let link = greeted.stream.try_clone().map_err(lost)?;
        self.life().link = Some((Arc::new(link), greeted.address));
        self.report(Event::Connected { has, of, bytes: self.manifest().data_bytes() });
        self.changed.notify_all();
        Ok(())
    }

    /// Handles the loss of the connection. Returns `false` if the sender is not needed any more.
    fn unlink(&self) -> bool {
        let mut life = self.life();
        life.link = None;
        life.fetches.clear();
        // The result has been reported, or cannot be.
        life.close();
        let goes_on = !life.is_complete() && !life.is_ending();
        drop(life);
        self.changed.notify_all();
        goes_on
    }

    /// Returns the addresses at which to try the sender, or `None` if it is not needed any more.
    fn addresses(&self) -> Option<Vec<SocketAddr>> {
        let life = self.life();
        let is_looked_for = !life.is_complete() && !life.is_ending();
        is_looked_for.then(|| life.addresses.clone())
    }

    /// Waits for `time`. Returns `None` if the receiver ends meanwhile.
    fn pause(&self, time: Duration) -> Option<()> {
        let until = Instant::now() + time;
        let mut life = self.life();
        while !life.is_ending() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Some(());
            }
            let waited = self.changed.wait_timeout(life, left);
            life = waited.expect("no panic while the lock is held").0;
        }
        None
    }

    /// Waits for an assigned fetch. Returns it with the address of the sender, or `None` if the
    /// receiver ends.
    fn next_fetch(&self) -> Option<(Fetch, SocketAddr)> {
        let mut life = self.life();
        loop {
            if life.is_ending() {
                return None;
            }
            let sender = life.link.as_ref().map(|(_, address)| *address);
            if let Some(next) = sender.and_then(|sender| Some((life.fetches.pop()?, sender))) {
                return Some(next);
            }
            life = self.changed.wait(life).expect("no panic while the lock is held");
        }
    }

    fn last_word(&self, is_told: bool) {
        self.life().last_word(is_told);
        self.changed.notify_all();
    }

    /// Waits until all pieces are received, and gives the entries their final names.
    fn finish(&self) {
        let mut life = self.life();
        while !life.is_ending() && !life.is_complete() {
            life = self.changed.wait(life).expect("no panic while the lock is held");
        }
        if life.is_ending() {
            // A piece in flight at that moment may have been the last one.
            return;
        }
        drop(life);
        let published = self.store.publish();
        if published.is_ok() {
            self.report(Event::Finished);
        }
        self.life().end(published);
        self.changed.notify_all();
    }

    fn stop(&self) {
        let mut life = self.life();
        if !life.is_complete() {
            life.end(Err(ReceiveError::Stopped));
        }
        // A complete transfer still gets its final names, but this does not wait for other
        // receivers.
        life.close();
        if let Some((link, _)) = &life.link {
            // An error means that the connection is already closed.
            let _ = link.shutdown(Shutdown::Both);
        }
        drop(life);
        self.changed.notify_all();
    }
}

/// Serves pieces over a connection of another receiver.
fn serve_piece(shared: &Arc<Shared>, stream: &std::net::TcpStream, asked: Opening) {
    if let Err(error) = give(stream, &**shared, &shared.gate, asked) {
        tracing::trace!(%error, "a connection for pieces has ended");
    }
}

/// Checks the manifest and opens the existing data of the transfer.
fn open_store(
    greeted: &Greeted,
    id: TransferId,
    options: &ReceiveOptions,
) -> Result<Store, ReceiveError> {
    let manifest = Arc::new(link::read_manifest(&greeted.manifest, id)?);
    let mut told_at = Instant::now();
    let mut alive = || {
        if told_at.elapsed() >= SIGN_OF_LIFE {
            told_at = Instant::now();
            // The loss of the sender is detected by the next report.
            let _ = frame::write(&mut &greeted.stream, &FromReceiver::Alive);
        }
    };
    let store = Store::open(options.directory.clone(), manifest, options.overwrite, &mut alive)?;
    Ok(if options.cached { store } else { store.past_the_cache() })
}

fn listen(at: SocketAddr, sender: SocketAddr) -> Result<(TcpListener, u16), ReceiveError> {
    let mut at = at;
    if at.ip().is_unspecified() && sender.is_ipv6() {
        at.set_ip(Ipv6Addr::UNSPECIFIED.into());
    }
    let listener = TcpListener::bind(at).and_then(|listener| {
        let port = listener.local_addr()?.port();
        Ok((listener, port))
    });
    listener
        .map_err(|error| ReceiveError::Start(format!("cannot listen on {at}: {}", plain(&error))))
}

#[cfg(test)]
#[path = "ending_tests.rs"]
mod tests;

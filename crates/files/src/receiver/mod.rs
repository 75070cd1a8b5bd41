mod assembly;
mod direct;
mod existing_data;
mod fetcher;
mod fetches;
mod final_names;
mod folder;
mod greeting;
mod journal;
mod kept;
mod life;
mod link;
mod options;
mod outbox;
mod recover;
mod shared;
mod store;

use std::net::{Ipv6Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use bytes::Bytes;
use fetcher::FETCHERS;
use greeting::{Greeted, greet};
pub use kept::{Kept, kept, try_writing};
pub use options::ReceiveOptions;
pub use recover::recover;
use shared::Shared;
use store::Store;

use crate::door::Door;
use crate::error::{ReceiveError, plain};
use crate::frame::{self, FromReceiver};
use crate::id::TransferId;
use crate::limits::{PIECE_CONNECTIONS, SIGN_OF_LIFE};
use crate::manifest::Manifest;
use crate::offer::Offer;
use crate::peers::small_thread;
use crate::summary::Received;

/// A transfer that is being received into a directory, in its own threads.
///
/// The application passes it the messages of the stream ([`on_block`](Self::on_block)). It also
/// passes further offers of the transfer ([`on_offer`](Self::on_offer)), because a restarted sender
/// can have another address. If the receiver is dropped early, a later receiver with the same
/// directory resumes with the received pieces.
pub struct Receiving {
    shared: Arc<Shared>,
    finishing: Option<JoinHandle<()>>,
    /// Serves pieces to other receivers until it is dropped.
    _listening: Door,
}

impl Receiving {
    /// Connects to the sender of an offer, prepares the directory, and joins the transfer.
    ///
    /// The call also reads and verifies the data of an earlier attempt, which may take a long time.
    ///
    /// # Errors
    /// Returns an error if the sender cannot be reached or rejects this receiver, if the content
    /// cannot be stored in the directory, or if the system cannot start the receiver.
    pub fn start(offer: &Offer, options: ReceiveOptions) -> Result<Self, ReceiveError> {
        let greeted = greet(&offer.addresses, offer.id, &options, false)?;
        let reported = |error: ReceiveError| {
            greeted.report_failure(&error);
            error
        };
        let listener = listen(options.listen, greeted.address).map_err(reported)?;
        let (listener, piece_port) = listener;
        let store = open_store(&greeted, offer.id, &options).map_err(reported)?;
        let shared = Arc::new(Shared::new(store, options, offer, piece_port));
        let start = |error: std::io::Error| ReceiveError::Start(plain(&error));
        let serving = Arc::clone(&shared);
        let serve = move |stream, _, opening| serving.serve(&stream, opening);
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
        small_thread("carom-tell", move || link::report_all(&shared))?;
        for _ in 0..FETCHERS {
            let shared = Arc::clone(&self.shared);
            small_thread("carom-fetch", move || fetcher::fetch_all(&shared))?;
        }
        Ok(())
    }

    /// Processes a message of the multicast stream. A message that is not a block of this transfer
    /// is only counted.
    ///
    /// If the message completes a piece, the piece is verified and written before the call returns.
    /// Thus the flow control of the stream slows the sender down to the speed of the disk.
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

    /// Returns the manifest of the transfer.
    pub fn manifest(&self) -> &Manifest {
        self.shared.manifest()
    }

    /// Returns the number of verified and written pieces, and their total size in bytes.
    pub fn progress(&self) -> (u32, u64) {
        (self.shared.store.have().count(), self.shared.store.verified_bytes())
    }

    /// Waits until the entries have their final names and the connection to the sender has ended,
    /// or the receiver has failed or was stopped. Meanwhile, others can fetch its pieces.
    ///
    /// # Errors
    /// Returns the reason for the failure.
    pub fn wait(&self) -> Result<Received, ReceiveError> {
        self.shared.wait()
    }

    /// Stops the receiver, as dropping it does, but returns at once. Entries still get their final
    /// names if all pieces have been received.
    pub fn stop(&self) {
        self.shared.stop();
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        self.shared.stop();
        if let Some(finishing) = self.finishing.take() {
            // A panic of the thread is a bug and was already reported.
            let _ = finishing.join();
        }
        self.shared.store.close();
    }
}

fn open_store(
    greeted: &Greeted,
    id: TransferId,
    options: &ReceiveOptions,
) -> Result<Store, ReceiveError> {
    let manifest = Arc::new(greeted.manifest(id)?);
    let mut told_at = Instant::now();
    let mut alive = || {
        if told_at.elapsed() >= SIGN_OF_LIFE {
            told_at = Instant::now();
            // The next report detects the loss of the sender.
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

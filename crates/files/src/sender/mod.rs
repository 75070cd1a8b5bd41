mod link;
mod options;
mod ranges;
mod roster;
mod shared;
mod stream;
mod tracker;
mod who;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

pub use options::{SendOptions, StartWhen};
use shared::Shared;

use crate::block_sink::BlockSink;
use crate::door::Door;
use crate::error::{SendError, SourceError};
use crate::frame::{FromSender, plain_text};
use crate::limits::PIECE_CONNECTIONS;
use crate::manifest::Manifest;
use crate::offer::Offer;
use crate::peers::small_thread;
use crate::scan::{Content, Findings, Source};
use crate::summary::{ReceiverRow, Summary};

/// A transfer that is offered to receivers, and sent by [`run`](Self::run).
///
/// The application multicasts [`offer`](Self::offer) repeatedly until `run` returns. If the
/// `Sending` is dropped before that, receivers can resume when the same content is offered again.
pub struct Sending {
    shared: Arc<Shared>,
    offer: Offer,
    /// Dropped before the connections are closed, so that no new connections are accepted.
    listening: Option<Door>,
    tracking: Option<JoinHandle<()>>,
}

/// A handle to query and cancel a transfer from other threads.
#[derive(Clone)]
pub struct SendHandle {
    shared: Arc<Shared>,
}

impl Sending {
    /// Reads the sources and starts to listen for receivers.
    ///
    /// # Errors
    /// Returns an error if a source cannot be read or sent, the address cannot be bound, the
    /// options are invalid, or the system cannot create a thread.
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

    /// Returns the offer that the application announces to receivers.
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

    /// Waits for receivers, sends the stream, and waits until each receiver has finished, has
    /// failed, or has been disconnected for longer than `patience`.
    ///
    /// # Errors
    /// Returns an error if the transfer ends for all receivers, which are notified of the reason.
    /// Failures of individual receivers are only in the summary, even if all of them fail.
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
        self.shared.end();
        self.listening = None;
        self.shared.wake();
        if let Some(tracking) = self.tracking.take() {
            // A panic of the thread is a bug and was already reported.
            let _ = tracking.join();
        }
        let mut state = self.shared.state();
        (0..state.roster.rows.len()).for_each(|index| state.roster.rows[index].cut());
    }
}

impl SendHandle {
    /// Returns the rows of all receivers that have become ready, failed or been lost so far.
    pub fn receivers(&self) -> Vec<ReceiverRow> {
        self.shared.state().roster.rows.iter().map(|row| row.told.clone()).collect()
    }

    /// Returns `true` if every receiver that was recently heard has all pieces. In this case,
    /// waiting for the rest of the stream is useless.
    pub fn is_served(&self) -> bool {
        !self.shared.state().roster.is_anybody_lacking()
    }

    /// Returns the time since any receiver with missing pieces last obtained one or became ready,
    /// or [`Duration::MAX`] if there is no such receiver. If this time grows after the stream was
    /// sent, return from [`BlockSink::flush`] early, so that the missing pieces are fetched sooner.
    pub fn still_for(&self) -> Duration {
        self.shared.state().roster.still_for()
    }

    /// Ends the transfer with [`SendError::Cancelled`]. Receivers keep the pieces that they have.
    pub fn cancel(&self) {
        self.shared.state().broken.get_or_insert(SendError::Cancelled);
        self.shared.wake();
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

fn name_of(manifest: &Manifest) -> String {
    let roots = manifest.entries().iter().filter(|entry| entry.path.is_root()).count();
    let first = &manifest.entries()[0].path;
    match roots {
        1 => first.to_string(),
        _ => format!("{first} and {} more", roots - 1),
    }
}

//! Connection of a receiver to the sender.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{ReceiveError, plain};
use crate::frame::{self, FromReceiver, FromSender, Opening, PROTOCOL_VERSION, plain_text};
use crate::id::TransferId;
use crate::limits::{MAX_MANIFEST_BYTES, SIGN_OF_LIFE};
use crate::manifest::{Manifest, ManifestError};
use crate::peers::set_limits;
use crate::progress::Event;
use crate::receiving::fetch::Fetch;
use crate::receiving::{ReceiveOptions, Shared};

const CONNECT: Duration = Duration::from_secs(5);
/// Pause between two attempts to reconnect to the sender.
const RETRY: Duration = Duration::from_millis(300);
/// Maximum size of a frame that is accepted from the sender, in bytes.
const MAX_FROM_SENDER: u32 = 2048;
/// Interval between checks for the end of the stream's last blocks.
const LOOK: Duration = Duration::from_millis(50);

/// Connection to a sender that has accepted the hello.
pub(crate) struct Greeted {
    pub(crate) stream: TcpStream,
    pub(crate) address: SocketAddr,
    /// Manifest received after the `Welcome` frame.
    pub(crate) manifest: Vec<u8>,
}

/// Connects to the first of `addresses` that answers, and sends a hello.
pub(crate) fn greet(
    addresses: &[SocketAddr],
    id: TransferId,
    options: &ReceiveOptions,
    knows_manifest: bool,
) -> Result<Greeted, ReceiveError> {
    let mut last = "the offer has no address".to_owned();
    for address in addresses {
        let stream = TcpStream::connect_timeout(address, CONNECT).and_then(|stream| {
            set_limits(&stream)?;
            Ok(stream)
        });
        match stream {
            Ok(stream) => return hello(stream, *address, id, options, knows_manifest),
            Err(error) => last = format!("{address}: {}", plain(&error)),
        }
    }
    Err(ReceiveError::Unreachable(last))
}

fn hello(
    stream: TcpStream,
    address: SocketAddr,
    id: TransferId,
    options: &ReceiveOptions,
    knows_manifest: bool,
) -> Result<Greeted, ReceiveError> {
    let lost =
        |error: io::Error| ReceiveError::Unreachable(format!("{address}: {}", plain(&error)));
    let (name, place) = (plain_text(&options.name), options.place());
    let hello = Opening::Hello { version: PROTOCOL_VERSION, id, name, place, knows_manifest };
    frame::write(&mut &stream, &hello).map_err(lost)?;
    match frame::read(&mut &stream, MAX_FROM_SENDER).map_err(lost)? {
        FromSender::Welcome { manifest_bytes } if manifest_bytes > MAX_MANIFEST_BYTES => {
            Err(ManifestError::TooMany("bytes of names and hashes").into())
        }
        FromSender::Welcome { manifest_bytes } => {
            let manifest = frame::read_bytes(&mut &stream, manifest_bytes).map_err(lost)?;
            Ok(Greeted { stream, address, manifest })
        }
        FromSender::Refused { reason } => Err(ReceiveError::Refused(plain_text(&reason))),
        _ => Err(lost(frame::nonsense("unexpected reply to the hello"))),
    }
}

/// Decodes the manifest and checks that it has the id of the offer.
pub(crate) fn read_manifest(bytes: &[u8], id: TransferId) -> Result<Manifest, ReceiveError> {
    let manifest = Manifest::decode(bytes)?;
    if manifest.id() == id { Ok(manifest) } else { Err(ReceiveError::OtherManifest) }
}

/// Reports a failure to the sender. It is not certain that the report arrives.
pub(crate) fn tell_failure(stream: &TcpStream, error: &ReceiveError) {
    let reason = plain_text(&error.to_string());
    let _ = frame::write(&mut &*stream, &FromReceiver::Failed { reason });
    let _ = stream.shutdown(Shutdown::Both);
}

/// Handles the frames of the sender, and reconnects to it when the connection is lost, until the
/// receiver ends.
pub(crate) fn follow(shared: &Arc<Shared>, first: TcpStream) {
    let mut stream = first;
    loop {
        let error = read_all(shared, &stream);
        tracing::debug!(%error, "lost the connection to the sender");
        let _ = stream.shutdown(Shutdown::Both);
        if !shared.unlink() {
            return;
        }
        shared.report(Event::SenderLost);
        match find_again(shared) {
            Some(found) => stream = found,
            None => return,
        }
    }
}

/// Handles the frames of the sender until the connection ends. Returns the reason.
fn read_all(shared: &Shared, stream: &TcpStream) -> io::Error {
    loop {
        let frame = match frame::read(&mut &*stream, MAX_FROM_SENDER) {
            Ok(frame) => frame,
            Err(error) => return error,
        };
        match frame {
            FromSender::Alive => {}
            FromSender::Welcome { .. } => return frame::nonsense("unexpected welcome frame"),
            FromSender::Refused { reason } => {
                shared.fail(ReceiveError::Refused(plain_text(&reason)));
            }
            FromSender::Aborted { reason, discard } => {
                shared.aborted(plain_text(&reason), discard);
            }
            FromSender::StreamOver => shared.stream_is_over(),
            FromSender::Fetch { piece, source, address } => {
                let fetch = Fetch { piece, source, address };
                if !shared.life().fetches.push(fetch) {
                    return frame::nonsense("too many assigned fetches");
                }
                shared.changed.notify_all();
            }
            FromSender::Done => shared.done(),
        }
    }
}

/// Tries to reconnect to the sender at its known addresses and those of newer offers, for
/// `patience`.
fn find_again(shared: &Arc<Shared>) -> Option<TcpStream> {
    let lost_at = Instant::now();
    while lost_at.elapsed() < shared.options.patience {
        let addresses = shared.addresses()?;
        let id = shared.manifest().id();
        match greet(&addresses, id, &shared.options, true) {
            Ok(greeted) => match shared.link(&greeted) {
                Ok(()) => return Some(greeted.stream),
                Err(error) => tracing::debug!(%error, "lost the connection to the sender again"),
            },
            Err(error) => tracing::debug!(%error, "cannot reconnect to the sender"),
        }
        shared.pause(RETRY)?;
    }
    shared.fail(ReceiveError::SenderGone);
    None
}

/// Sends reports and keepalives to the sender until the receiver ends.
pub(crate) fn tell_all(shared: &Arc<Shared>) {
    let mut told_at = Instant::now();
    loop {
        let mut life = shared.life();
        let settle = shared.options.settle;
        while life.ended.is_none()
            && !life.has_to_tell(told_at.elapsed(), settle)
            && told_at.elapsed() < SIGN_OF_LIFE
        {
            let waited = shared.changed.wait_timeout(life, LOOK);
            life = waited.expect("no panic while the lock is held").0;
        }
        if life.ended.is_some() {
            return;
        }
        told_at = Instant::now();
        let (link, frames) = life.take_frames(settle);
        let is_last = life.takes_last_word();
        drop(life);
        let is_told = link.as_ref().is_some_and(|link| write_all(link, &frames).is_ok());
        if let (Some(link), false) = (&link, is_told) {
            // The reading thread detects this and reconnects.
            let _ = link.shutdown(Shutdown::Both);
        }
        if is_last {
            shared.last_word(is_told);
        }
    }
}

fn write_all(mut link: &TcpStream, frames: &[FromReceiver]) -> io::Result<()> {
    frames.iter().try_for_each(|frame| frame::write(&mut link, frame))
}

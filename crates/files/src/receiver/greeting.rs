//! Greets a sender: a receiver sends its hello and receives the manifest.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use crate::error::{ReceiveError, plain};
use crate::frame::{self, FromReceiver, FromSender, Opening, PROTOCOL_VERSION, plain_text};
use crate::id::TransferId;
use crate::limits::MAX_MANIFEST_BYTES;
use crate::manifest::{Manifest, ManifestError};
use crate::peers::set_limits;
use crate::receiver::options::ReceiveOptions;

const CONNECT: Duration = Duration::from_secs(5);
pub(crate) const MAX_FROM_SENDER: u32 = 2048;

pub(crate) struct Greeted {
    pub(crate) stream: TcpStream,
    pub(crate) address: SocketAddr,
    manifest: Vec<u8>,
}

impl Greeted {
    pub(crate) fn manifest(&self, id: TransferId) -> Result<Manifest, ReceiveError> {
        let manifest = Manifest::decode(&self.manifest)?;
        if manifest.id() == id { Ok(manifest) } else { Err(ReceiveError::OtherManifest) }
    }

    pub(crate) fn report_failure(&self, error: &ReceiveError) {
        let reason = plain_text(&error.to_string());
        let _ = frame::write(&mut &self.stream, &FromReceiver::Failed { reason });
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

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

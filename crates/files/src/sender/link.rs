use std::io::{self, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Instant;

use bytes::Bytes;

use crate::frame::{
    self, FromReceiver, FromSender, Opening, PROTOCOL_VERSION, nonsense, plain_text,
};
use crate::id::TransferId;
use crate::limits::{FRAMES_WAITING, MAX_FRAME_BYTES, SIGN_OF_LIFE};
use crate::peers::{Pieces, give, small_thread};
use crate::piece::PieceSet;
use crate::progress::Event;
use crate::sender::ranges::is_in_order;
use crate::sender::roster::{Index, Link, Ready};
use crate::sender::shared::{Phase, Shared};
use crate::sender::who::Who;
use crate::summary::State;

pub(crate) fn serve(shared: &Arc<Shared>, stream: TcpStream, from: SocketAddr, opening: Opening) {
    let stream = Arc::new(stream);
    let served = match opening {
        Opening::Hello { version, id, name, place, knows_manifest } => {
            let who = Who { name: plain_text(&name), place, host: from.ip() };
            let hello = Hello { shared, stream: &stream, who };
            hello.answer(version, id, knows_manifest)
        }
        ask @ Opening::Ask { .. } => give(&stream, &**shared, &shared.gate, ask),
    };
    if let Err(error) = served {
        tracing::debug!(%from, %error, "a connection has ended");
    }
    // The writing thread may be waiting on the same connection.
    let _ = stream.shutdown(Shutdown::Both);
}

impl Pieces for Shared {
    fn piece(&self, id: &TransferId, piece: u32) -> Option<Bytes> {
        let manifest = &self.content.manifest;
        if *id != manifest.id() || piece >= manifest.pieces() || self.has_ended() {
            return None;
        }
        match self.content.read(piece) {
            Ok(bytes) => {
                self.state().served_bytes += bytes.len() as u64;
                Some(bytes)
            }
            Err(error) => {
                self.break_off(error);
                None
            }
        }
    }
}

/// A receiver that is preparing. If it is still preparing when this is dropped, it counts as lost.
struct Preparing<'a> {
    shared: &'a Shared,
    link: u64,
}

impl<'a> Preparing<'a> {
    fn new(shared: &'a Shared, who: Who) -> Self {
        let link = shared.links.fetch_add(1, Relaxed);
        shared.state().roster.prepare(link, who);
        Self { shared, link }
    }

    fn given_up(&self) -> Option<String> {
        let mut state = self.shared.state();
        self.shared.give_up_overdue(&mut state);
        (!state.roster.preparing.contains_key(&self.link)).then(|| self.shared.overdue())
    }
}

impl Drop for Preparing<'_> {
    fn drop(&mut self) {
        self.shared.lost_early(self.link);
    }
}

struct Hello<'a> {
    shared: &'a Arc<Shared>,
    stream: &'a Arc<TcpStream>,
    who: Who,
}

impl Hello<'_> {
    fn answer(self, version: u16, id: TransferId, knows_manifest: bool) -> io::Result<()> {
        let mut stream = &**self.stream;
        let refused = if version != PROTOCOL_VERSION {
            Some(format!(
                "protocol version {version} is not supported: expected {PROTOCOL_VERSION}"
            ))
        } else if id != self.shared.content.manifest.id() {
            Some("the sender offers another transfer".to_owned())
        } else if self.shared.is_full() {
            Some("too many receivers".to_owned())
        } else {
            None
        };
        if let Some(reason) = refused {
            return frame::write(&mut stream, &FromSender::Refused { reason });
        }
        let manifest = if knows_manifest { &[][..] } else { &self.shared.encoded[..] };
        let manifest_bytes = manifest.len() as u32;
        let preparing = Preparing::new(self.shared, self.who.clone());
        frame::write(&mut stream, &FromSender::Welcome { manifest_bytes })?;
        stream.write_all(manifest)?;
        loop {
            match self.read()? {
                FromReceiver::Alive => {
                    if let Some(reason) = preparing.given_up() {
                        return frame::write(&mut stream, &FromSender::Refused { reason });
                    }
                }
                FromReceiver::Failed { reason } => {
                    self.shared.failed_early(preparing.link, plain_text(&reason));
                    return Ok(());
                }
                FromReceiver::Ready { key, piece_port, have } => {
                    return self.take_part(key, piece_port, &have, preparing);
                }
                _ => return Err(nonsense("unexpected frame before the ready frame")),
            }
        }
    }

    fn read(&self) -> io::Result<FromReceiver> {
        frame::read(&mut &**self.stream, MAX_FRAME_BYTES)
    }

    fn take_part(
        self,
        key: [u8; 16],
        piece_port: u16,
        have: &[u8],
        preparing: Preparing<'_>,
    ) -> io::Result<()> {
        let shared = self.shared;
        let pieces = shared.content.manifest.pieces();
        let have = PieceSet::from_bytes(have, pieces).ok_or(nonsense("invalid set of pieces"))?;
        let (frames, waiting) = sync_channel(FRAMES_WAITING);
        let writing = Arc::clone(self.stream);
        small_thread("carom-link-out", move || write_all(&writing, &waiting))?;
        let number = preparing.link;
        let link = Link { number, frames, stream: Arc::clone(self.stream) };
        let ready = Ready { who: self.who.clone(), key, piece_port, have, link };
        let open = Arc::clone(&shared.links_open);
        let index = shared.ready(ready);
        let ended = match index {
            Some(index) => {
                let ended = self.follow(index);
                shared.lost(index, number);
                ended
            }
            None => {
                let reason = "the transfer has ended".to_owned();
                frame::write(&mut &**self.stream, &FromSender::Refused { reason })
            }
        };
        drop(open);
        shared.wake();
        ended
    }

    fn follow(&self, index: Index) -> io::Result<()> {
        let shared = self.shared;
        let manifest = &shared.content.manifest;
        loop {
            let frame = self.read()?;
            let mut state = shared.state();
            let roster = &mut state.roster;
            roster.rows[index].heard_at = Instant::now();
            match frame {
                FromReceiver::Alive => continue,
                FromReceiver::Ready { .. } => return Err(nonsense("unexpected ready frame")),
                FromReceiver::Have { pieces, .. } | FromReceiver::Missed { pieces, .. }
                    if !is_in_order(&pieces) =>
                {
                    return Err(nonsense("pieces out of order"));
                }
                FromReceiver::Have { way, pieces } => roster.has(index, way, &pieces, manifest),
                FromReceiver::Missed { pieces, wrong } => roster.missed(index, &pieces, wrong),
                FromReceiver::Settled => {
                    if state.phase == Phase::Over {
                        let row = &mut state.roster.rows[index];
                        row.is_settled = true;
                        row.want_from_to(0, manifest.pieces());
                    }
                }
                FromReceiver::FetchFailed { piece, why, .. } => {
                    if roster.fetch_failed(index, piece, why) {
                        let reason = format!("piece {piece} repeatedly had wrong data");
                        roster.give_up(index, reason.clone());
                        shared
                            .report(Event::ReceiverFailed { name: self.who.name.clone(), reason });
                    }
                }
                FromReceiver::Finished => {
                    let row = &mut roster.rows[index];
                    if !row.have.is_full() {
                        return Err(nonsense("finished without all pieces"));
                    }
                    row.told.state = State::Finished;
                    shared.report(Event::ReceiverFinished { name: self.who.name.clone() });
                }
                FromReceiver::Failed { reason } => {
                    let reason = plain_text(&reason);
                    roster.rows[index].told.state = State::Failed(reason.clone());
                    shared.report(Event::ReceiverFailed { name: self.who.name.clone(), reason });
                }
            }
            drop(state);
            shared.wake();
        }
    }
}

fn write_all(mut stream: &TcpStream, waiting: &Receiver<FromSender>) {
    loop {
        let frame = match waiting.recv_timeout(SIGN_OF_LIFE) {
            Ok(frame) => frame,
            Err(RecvTimeoutError::Timeout) => FromSender::Alive,
            Err(RecvTimeoutError::Disconnected) => break,
        };
        if frame::write(&mut stream, &frame).is_err() {
            break;
        }
    }
    // The receiver closes its side after it has read all frames.
    let _ = stream.shutdown(Shutdown::Write);
}

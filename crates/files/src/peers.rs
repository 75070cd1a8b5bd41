//! Transfers pieces over TCP. Receivers serve and fetch pieces, and the sender serves them.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Condvar, Mutex};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::frame::{self, FetchFailure, Opening, PieceAnswer};
use crate::id::TransferId;
use crate::limits::{PIECE_PAUSE, PIECES_GIVEN_AT_A_TIME, SILENCE, SLOWEST_PIECE, STACK_BYTES};

pub(crate) const MAX_OPENING_BYTES: u32 = 512;
const CONNECT: Duration = Duration::from_secs(5);

pub(crate) trait Pieces: Send + Sync + 'static {
    /// Returns the verified bytes of the piece, or `None` if they are not available.
    fn piece(&self, id: &TransferId, piece: u32) -> Option<Bytes>;
}

pub(crate) fn small_thread(
    name: &str,
    run: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    Builder::new().name(name.into()).stack_size(STACK_BYTES).spawn(run)
}

pub(crate) fn set_limits(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(SILENCE))?;
    stream.set_write_timeout(Some(SILENCE))
}

#[derive(Default)]
pub(crate) struct Gate {
    inside: Mutex<usize>,
    left: Condvar,
}

struct Inside<'a>(&'a Gate);

impl Gate {
    fn enter(&self) -> Inside<'_> {
        let mut inside = self.inside.lock().expect("no panic while the lock is held");
        while *inside >= PIECES_GIVEN_AT_A_TIME {
            inside = self.left.wait(inside).expect("no panic while the lock is held");
        }
        *inside += 1;
        Inside(self)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        *self.0.inside.lock().expect("no panic while the lock is held") -= 1;
        self.0.left.notify_one();
    }
}

/// A stream with a time limit for a whole piece, in addition to that for each read or write.
struct Hurried<'a> {
    stream: &'a TcpStream,
    until: Instant,
}

impl<'a> Hurried<'a> {
    fn new(stream: &'a TcpStream, bytes: usize) -> Self {
        let time = SILENCE + Duration::from_secs(1) * (bytes as u32 / SLOWEST_PIECE);
        Self { stream, until: Instant::now() + time }
    }

    fn check(&self) -> io::Result<()> {
        if Instant::now() < self.until { Ok(()) } else { Err(io::ErrorKind::TimedOut.into()) }
    }
}

impl Read for Hurried<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.check()?;
        self.stream.read(into)
    }
}

impl Write for Hurried<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.check()?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

pub(crate) fn give(
    mut stream: &TcpStream,
    pieces: &dyn Pieces,
    gate: &Gate,
    first: Opening,
) -> io::Result<()> {
    let mut asked = first;
    stream.set_read_timeout(Some(PIECE_PAUSE))?;
    loop {
        let Opening::Ask { id, piece } = asked else {
            return Err(frame::nonsense("unexpected frame on a connection for pieces"));
        };
        let inside = gate.enter();
        match pieces.piece(&id, piece) {
            Some(bytes) => {
                frame::write(&mut stream, &PieceAnswer::Piece { bytes: bytes.len() as u32 })?;
                Hurried::new(stream, bytes.len()).write_all(&bytes)?;
            }
            None => frame::write(&mut stream, &PieceAnswer::NotThere)?,
        }
        drop(inside);
        asked = frame::read(&mut stream, MAX_OPENING_BYTES)?;
    }
}

#[derive(Default)]
pub(crate) struct Asking(Option<(SocketAddr, TcpStream)>);

impl Asking {
    /// Requests a piece. The returned bytes are not verified.
    pub(crate) fn ask(
        &mut self,
        address: SocketAddr,
        id: TransferId,
        piece: u32,
        bytes: u32,
    ) -> Result<Vec<u8>, FetchFailure> {
        let kept = self.0.take().filter(|(kept, _)| *kept == address);
        let was_kept = kept.is_some();
        let mut got = kept.map_or_else(
            || ask_new(address, id, piece, bytes),
            |(_, stream)| ask_over(stream, id, piece, bytes),
        );
        if was_kept && got.as_ref().is_err_and(is_closed) {
            // The source closes connections that were idle for a while.
            got = ask_new(address, id, piece, bytes);
        }
        let (stream, answer) = got.map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => FetchFailure::Wrong,
            _ => FetchFailure::Unreachable,
        })?;
        self.0 = Some((address, stream));
        answer.ok_or(FetchFailure::NotThere)
    }
}

fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}

type Answered = io::Result<(TcpStream, Option<Vec<u8>>)>;

fn ask_new(address: SocketAddr, id: TransferId, piece: u32, bytes: u32) -> Answered {
    let stream = TcpStream::connect_timeout(&address, CONNECT)?;
    set_limits(&stream)?;
    ask_over(stream, id, piece, bytes)
}

fn ask_over(mut stream: TcpStream, id: TransferId, piece: u32, bytes: u32) -> Answered {
    frame::write(&mut stream, &Opening::Ask { id, piece })?;
    match frame::read(&mut stream, MAX_OPENING_BYTES)? {
        PieceAnswer::Piece { bytes: length } if length == bytes => {
            let mut hurried = Hurried::new(&stream, length as usize);
            let bytes = frame::read_bytes(&mut hurried, length)?;
            Ok((stream, Some(bytes)))
        }
        PieceAnswer::Piece { .. } => Err(frame::nonsense("unexpected length of a piece")),
        PieceAnswer::NotThere => Ok((stream, None)),
    }
}

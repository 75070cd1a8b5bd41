//! The socket by which other commands change a running lab: one line of JSON in each direction.

use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use carom_netns::{Lab, Owner};
use carom_terminal::{CliError, plain};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::de::DeserializeOwned;

use super::request::{Reply, Request};
use super::state::State;

/// Serves requests in threads of their own until the process ends.
///
/// A connection has a thread, so that a client that does not send or receive delays no other.
pub(super) fn serve(listener: UnixListener, lab: Arc<Lab>) -> Result<(), CliError> {
    let accept = move || {
        let connections = Arc::new(());
        for stream in listener.incoming() {
            let Ok(stream) = stream else {
                // The limit of open files may last.
                thread::sleep(TURN);
                continue;
            };
            let connection = Arc::clone(&connections);
            // The count includes the original. A client without a reply reports it.
            if Arc::strong_count(&connections) > MOST_CONNECTIONS + 1 {
                continue;
            }
            let lab = Arc::clone(&lab);
            // A thread that cannot start drops the connection, which the client reports.
            let _ = spawn(move || {
                // A client that has ended needs no reply.
                let _ = answer(&stream, &lab);
                drop(connection);
            });
        }
    };
    spawn(accept).map_err(|error| {
        let cause = format!("cannot start a thread: {}", plain(&error));
        CliError::new(cause, "check the limits of this machine: processes, memory")
    })
}

/// Requests a change of a lab. Returns when it has taken effect.
pub(super) fn request(state: &State, request: &Request) -> Result<(), CliError> {
    match exchange(&state.socket(), request) {
        Ok(Reply::Done) => Ok(()),
        Ok(Reply::Refused { cause, fix }) => Err(CliError::new(cause, fix)),
        Err(error) if is_timeout(&error) => Err(CliError::new(
            format!("the lab {} does not reply", state.name),
            format!("continue it if it is stopped: kill -CONT {}", state.owner.pid),
        )),
        Err(error) if !has_ended(state.owner) => Err(CliError::new(
            format!("cannot reach the lab {}: {}", state.name, plain(&error)),
            "try again: a lab serves a limited number of requests at a time",
        )),
        Err(_) => Err(CliError::new(
            format!("the lab {} has ended", state.name),
            "start one in another terminal: `carom-lab net up`",
        )),
    }
}

fn exchange(socket: &Path, request: &Request) -> io::Result<Reply> {
    let stream = UnixStream::connect(socket)?;
    write_line(&stream, &serde_json::to_string(request)?)?;
    read_line(&stream, PATIENCE + request.length())
}

fn answer(stream: &UnixStream, lab: &Lab) -> io::Result<()> {
    let reply = match read_line::<Request>(stream, PATIENCE) {
        Ok(request) => {
            let wait = |length| await_hangup(stream, length);
            request.apply(lab, wait).err().unwrap_or(Reply::Done)
        }
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Reply::invalid(),
        Err(error) => return Err(error),
    };
    write_line(stream, &serde_json::to_string(&reply)?)
}

/// Waits for `length`, or until the client has ended.
fn await_hangup(stream: &UnixStream, length: Duration) {
    let end = Instant::now() + length;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        // Whole milliseconds, rounded up so that the last part is not spent in a loop.
        let ms = left.as_nanos().div_ceil(1_000_000);
        let timeout = PollTimeout::try_from(ms).unwrap_or(PollTimeout::MAX);
        // A hangup is reported without a request for it, and data that a client sends is not.
        let mut fds = [PollFd::new(stream.as_fd(), PollFlags::empty())];
        match poll(&mut fds, timeout) {
            Ok(0) if end > Instant::now() => {}
            Err(Errno::EINTR) => {}
            _ => return,
        }
    }
}

fn write_line(mut stream: &UnixStream, line: &str) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(format!("{line}\n").as_bytes())
}

/// Reads and parses a line of bounded length within `patience`.
fn read_line<T: DeserializeOwned>(mut stream: &UnixStream, patience: Duration) -> io::Result<T> {
    let give_up = Instant::now() + patience;
    let (mut line, mut part) = (Vec::new(), [0; 512]);
    while !line.ends_with(b"\n") && line.len() <= MOST_BYTES {
        let left = give_up.saturating_duration_since(Instant::now());
        // A timeout of zero would be none.
        stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        let bytes = match stream.read(&mut part) {
            // A process that is stopped and continued is interrupted.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        match bytes {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            _ if left.is_zero() => return Err(io::ErrorKind::TimedOut.into()),
            _ => line.extend_from_slice(&part[..bytes]),
        }
    }
    serde_json::from_slice(&line).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Returns `true` if the process has ended. The kernel closes the sockets of a process shortly
/// before it ends.
fn has_ended(owner: Owner) -> bool {
    (0..20).any(|_| {
        let is_alive = owner.is_alive();
        if is_alive {
            thread::sleep(TURN);
        }
        !is_alive
    })
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

fn spawn(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name("control".to_owned()).spawn(work).map(drop)
}

const MOST_CONNECTIONS: usize = 32;
const MOST_BYTES: usize = 4096;
const PATIENCE: Duration = Duration::from_secs(20);
const TURN: Duration = Duration::from_millis(50);

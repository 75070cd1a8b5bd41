//! Accepts connections. They wait in one thread until their first frame has arrived. Only then does
//! a connection get its own thread.

use std::io::{self, Read as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::frame::{self, Opening};
use crate::peers::{MAX_OPENING_BYTES, set_limits, small_thread};

pub(crate) struct Door {
    end: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

struct Waiting {
    stream: TcpStream,
    from: SocketAddr,
    until: Instant,
    bytes: Vec<u8>,
}

enum Heard {
    Part,
    All(Opening),
    Nonsense,
}

impl Door {
    /// Starts to accept connections, and serves at most `most` at a time.
    ///
    /// `refused` counts the connections that are closed before they are served.
    pub(crate) fn open(
        listener: TcpListener,
        most: usize,
        refused: Arc<AtomicU64>,
        serve: impl Fn(TcpStream, SocketAddr, Opening) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let end = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let mut keeper = Keeper {
            listener,
            end: Arc::clone(&end),
            refused,
            waiting: Vec::new(),
            most,
            serve: Arc::new(serve),
            rests_until: None,
        };
        let run = move || while keeper.turn() {};
        Ok(Self { end, thread: Some(small_thread("carom-listen", run)?) })
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        rustix::io::write(&self.end, &1_u64.to_ne_bytes()).expect("the counter was zero");
        if let Some(thread) = self.thread.take() {
            // A panic of the thread is a bug and was already reported.
            let _ = thread.join();
        }
    }
}

struct Keeper<S> {
    listener: TcpListener,
    end: Arc<OwnedFd>,
    refused: Arc<AtomicU64>,
    waiting: Vec<Waiting>,
    most: usize,
    serve: Arc<S>,
    /// Time until which no connection is accepted, after the system failed to accept one.
    rests_until: Option<Instant>,
}

impl<S: Fn(TcpStream, SocketAddr, Opening) + Send + Sync + 'static> Keeper<S> {
    fn turn(&mut self) -> bool {
        let now = Instant::now();
        self.rests_until = self.rests_until.filter(|until| *until > now);
        let dues = self.waiting.iter().map(|it| it.until).chain(self.rests_until);
        let timeout = dues.min().map(|due| timespec(due.saturating_duration_since(now)));
        let rests = self.rests_until.is_some();
        let accepts = if rests { PollFlags::empty() } else { PollFlags::IN };
        let mut ready =
            vec![PollFd::new(&*self.end, PollFlags::IN), PollFd::new(&self.listener, accepts)];
        ready.extend(self.waiting.iter().map(|it| PollFd::new(&it.stream, PollFlags::IN)));
        // An error of `poll` is harmless, because the reads below do not block.
        let _ = poll(&mut ready, timeout.as_ref());
        let ready: Vec<bool> = ready.iter().map(|it| !it.revents().is_empty()).collect();
        if ready[0] {
            return false;
        }
        self.hear(&ready[2..]);
        if ready[1] && !rests {
            self.accept();
        }
        true
    }

    /// Reads from the ready connections. Serves those whose first frame is complete, and drops
    /// those whose first frame is late or invalid.
    fn hear(&mut self, ready: &[bool]) {
        let now = Instant::now();
        for (index, mut waiting) in std::mem::take(&mut self.waiting).into_iter().enumerate() {
            let heard = match ready.get(index) {
                Some(true) => waiting.hear(),
                _ => Heard::Part,
            };
            match heard {
                Heard::All(opening) => self.let_in(waiting, opening),
                Heard::Part if waiting.until > now => self.waiting.push(waiting),
                Heard::Part | Heard::Nonsense => {
                    tracing::debug!(from = %waiting.from, "the first frame is late or invalid");
                    self.refused.fetch_add(1, Relaxed);
                }
            }
        }
    }

    fn accept(&mut self) {
        match self.listener.accept() {
            Ok((stream, from)) => {
                if stream.set_nonblocking(true).is_err() {
                    return;
                }
                if self.waiting.len() >= MOST_WAITING {
                    // A legitimate peer sends its first frame at once.
                    self.waiting.remove(0);
                    self.refused.fetch_add(1, Relaxed);
                }
                let until = Instant::now() + OPENING_PATIENCE;
                self.waiting.push(Waiting { stream, from, until, bytes: Vec::new() });
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => {
                // Errors such as too many open files persist for a while.
                tracing::warn!(%error, "cannot accept a connection");
                self.rests_until = Some(Instant::now() + REST);
            }
        }
    }

    fn let_in(&mut self, waiting: Waiting, opening: Opening) {
        let Waiting { stream, from, .. } = waiting;
        // Each open connection has a clone.
        if Arc::strong_count(&self.serve) > self.most {
            tracing::debug!(%from, "too many connections");
            self.refused.fetch_add(1, Relaxed);
            return;
        }
        if stream.set_nonblocking(false).and_then(|()| set_limits(&stream)).is_err() {
            return;
        }
        let serve = Arc::clone(&self.serve);
        let serving = move || serve(stream, from, opening);
        if let Err(error) = small_thread("carom-link", serving) {
            tracing::warn!(%from, %error, "cannot create a thread for a connection");
            self.refused.fetch_add(1, Relaxed);
        }
    }
}

impl Waiting {
    fn hear(&mut self) -> Heard {
        loop {
            let whole = match self.bytes.first_chunk() {
                None => 4,
                Some(length) => match u32::from_be_bytes(*length) {
                    length if length > MAX_OPENING_BYTES => return Heard::Nonsense,
                    length => 4 + length as usize,
                },
            };
            if whole > 4 && self.bytes.len() == whole {
                return match frame::read(&mut &*self.bytes, MAX_OPENING_BYTES) {
                    Ok(opening) => Heard::All(opening),
                    Err(_) => Heard::Nonsense,
                };
            }
            if self.bytes.len() == whole {
                return Heard::Nonsense;
            }
            let before = self.bytes.len();
            self.bytes.resize(whole, 0);
            let read = (&self.stream).read(&mut self.bytes[before..]);
            self.bytes.truncate(before + read.as_ref().map_or(0, |count| *count));
            match read {
                Ok(0) => return Heard::Nonsense,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Heard::Part,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Heard::Nonsense,
            }
        }
    }
}

fn timespec(time: Duration) -> Timespec {
    let tv_sec = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    Timespec { tv_sec, tv_nsec: time.subsec_nanos().into() }
}

const MOST_WAITING: usize = 256;
const OPENING_PATIENCE: Duration = Duration::from_secs(5);
const REST: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::sync::mpsc::channel;

    use super::*;
    use crate::id::TransferId;

    fn threads() -> usize {
        std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
    }

    #[test]
    fn idle_connections_have_no_threads_and_keep_nobody_out() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let (to, served) = channel();
        let serve = move |stream: TcpStream, _, opening| drop(to.send((stream, opening)));
        let refused = Arc::<AtomicU64>::default();
        let _door = Door::open(listener, 8, Arc::clone(&refused), serve).expect("a door");
        let before = threads();
        let idle: Vec<TcpStream> =
            (0..400).map(|_| TcpStream::connect(address).expect("it listens")).collect();
        let asked = Opening::Ask { id: TransferId([7; 32]), piece: 5 };
        let mut bytes = Vec::new();
        frame::write(&mut bytes, &asked).expect("a Vec takes all");
        let mut slow = TcpStream::connect(address).expect("it listens");
        for byte in &bytes {
            slow.write_all(&[*byte]).expect("it is read");
        }
        // Bytes after the first frame are left for `serve` to read.
        slow.write_all(b"more").expect("it is read");
        let (mut stream, opening) = served.recv().expect("it is served");
        assert_eq!(opening, asked);
        let mut more = [0; 4];
        stream.read_exact(&mut more).expect("it was left there");
        assert_eq!(&more, b"more");
        assert!(refused.load(Relaxed) >= (400 - MOST_WAITING) as u64, "{refused:?}");
        assert!(threads() < before + 100, "{before} became {}", threads());
        drop(idle);
    }

    #[test]
    fn nonsense_is_refused_and_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let refused = Arc::<AtomicU64>::default();
        let serve = |_, _, _| panic!("nobody is served");
        let _door = Door::open(listener, 8, Arc::clone(&refused), serve).expect("a door");
        for text in [&b"GET / HTTP/1.1\r\n"[..], &[0; 4], &[0, 0, 0, 1, 99], &[0xFF; 64]] {
            let mut stream = TcpStream::connect(address).expect("it listens");
            stream.write_all(text).expect("there is room");
            let _ = stream.read(&mut [0; 16]);
        }
        assert_eq!(refused.load(Relaxed), 4);
    }

    #[test]
    fn no_more_are_served_than_may_be() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let (to, served) = channel();
        // The first connection is served until its stream is closed.
        let serve = move |mut stream: TcpStream, _, _| {
            to.send(()).expect("the test listens");
            let _ = stream.read(&mut [0; 16]);
        };
        let refused = Arc::<AtomicU64>::default();
        let _door = Door::open(listener, 1, Arc::clone(&refused), serve).expect("a door");
        let ask = |address| {
            let mut stream = TcpStream::connect(address).expect("it listens");
            let asked = Opening::Ask { id: TransferId([7; 32]), piece: 5 };
            frame::write(&mut stream, &asked).expect("there is room");
            stream
        };
        let _first = ask(address);
        served.recv().expect("it is served");
        let mut second = ask(address);
        let _ = second.read(&mut [0; 16]);
        assert_eq!(refused.load(Relaxed), 1);
    }
}

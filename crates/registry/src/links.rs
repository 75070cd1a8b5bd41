//! TCP connections of a process or client, with a reading and a writing task each.
//!
//! Received data enters one bounded queue. Data to be sent is queued per connection, up to a bound.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use carom_proto::membership::link::{LinkEnd, LinkEvent, LinkId, MAX_WAITING_BYTES};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

#[derive(Debug)]
pub(crate) enum Arrival {
    Bytes(LinkId, Vec<u8>),
    /// End of the connection. Later arrivals of the connection are ignored.
    End(LinkId, LinkEnd),
}

#[derive(Debug)]
pub(crate) struct Links {
    links: BTreeMap<LinkId, Link>,
    next: u64,
    arrivals: mpsc::Sender<Arrival>,
    /// Writing tasks, including those of closed connections with unwritten data.
    writers: JoinSet<()>,
}

#[derive(Debug)]
struct Link {
    outgoing: mpsc::UnboundedSender<Vec<u8>>,
    waiting: Arc<AtomicUsize>,
    reader: AbortHandle,
}

/// Capacity of the queue of arrivals, each of up to [`BUFFER_BYTES`].
const ARRIVALS: usize = 1024;
const BUFFER_BYTES: usize = 16 << 10;

impl Links {
    pub(crate) fn new() -> (Self, mpsc::Receiver<Arrival>) {
        let (arrivals, receiver) = mpsc::channel(ARRIVALS);
        let (links, writers) = (BTreeMap::new(), JoinSet::new());
        (Self { links, next: 1, arrivals, writers }, receiver)
    }

    pub(crate) fn add(&mut self, stream: TcpStream) -> LinkId {
        let id = LinkId(self.next);
        self.next += 1;
        self.add_as(id, stream);
        id
    }

    /// Adds a connection under the id `id`, which must be new.
    pub(crate) fn add_as(&mut self, id: LinkId, stream: TcpStream) {
        while self.writers.try_join_next().is_some() {}
        // Without `TCP_NODELAY`, the connection is only slower.
        let _ = stream.set_nodelay(true);
        let (reading, writing) = stream.into_split();
        let (outgoing, queue) = mpsc::unbounded_channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let reader = tokio::spawn(read(id, reading, self.arrivals.clone())).abort_handle();
        self.writers.spawn(write(id, writing, queue, Arc::clone(&waiting), self.arrivals.clone()));
        self.links.insert(id, Link { outgoing, waiting, reader });
    }

    /// Returns the event of an arrival, or `None` if the connection was closed while the arrival
    /// was in flight. A connection that has ended is removed.
    pub(crate) fn event_of<'a>(&mut self, arrival: &'a Arrival) -> Option<(LinkId, LinkEvent<'a>)> {
        let (link, is_open, event) = match arrival {
            Arrival::Bytes(link, bytes) => {
                (*link, self.links.contains_key(link), LinkEvent::Received(bytes))
            }
            Arrival::End(link, why) => (*link, self.close(*link), LinkEvent::Closed { why: *why }),
        };
        is_open.then_some((link, event))
    }

    /// Queues `bytes` for writing, or drops them if the connection has ended. Closes the
    /// connection, and fails, if more than [`MAX_WAITING_BYTES`] would be unwritten.
    pub(crate) fn send(&mut self, id: LinkId, bytes: Vec<u8>) -> Result<(), LinkEnd> {
        let Some(link) = self.links.get(&id) else { return Ok(()) };
        let before = link.waiting.fetch_add(bytes.len(), Ordering::Relaxed);
        if before + bytes.len() > MAX_WAITING_BYTES {
            self.close(id);
            return Err(LinkEnd::TooSlow);
        }
        // If the writing task has ended, its `End` is already in the queue.
        let _ = link.outgoing.send(bytes);
        Ok(())
    }

    /// Closes a connection after its queued data has been written. Returns `true` if it was open.
    pub(crate) fn close(&mut self, id: LinkId) -> bool {
        let Some(link) = self.links.remove(&id) else { return false };
        link.reader.abort();
        true
    }

    pub(crate) async fn finish(&mut self) {
        for link in std::mem::take(&mut self.links).into_values() {
            link.reader.abort();
        }
        while self.writers.join_next().await.is_some() {}
    }

    pub(crate) fn close_all(&mut self) -> Vec<LinkId> {
        let all: Vec<LinkId> = self.links.keys().copied().collect();
        for link in &all {
            self.close(*link);
        }
        all
    }

    pub(crate) fn len(&self) -> usize {
        self.links.len()
    }
}

pub(crate) async fn accept(listener: TcpListener, accepted: mpsc::Sender<(TcpStream, SocketAddr)>) {
    loop {
        match listener.accept().await {
            Ok(connection) => {
                if accepted.send(connection).await.is_err() {
                    return;
                }
            }
            // Too many files may be open, or the peer has closed. Later connections may succeed.
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    }
}

async fn read(id: LinkId, mut stream: OwnedReadHalf, arrivals: mpsc::Sender<Arrival>) {
    let mut buffer = vec![0; BUFFER_BYTES];
    let end = loop {
        match stream.read(&mut buffer).await {
            Ok(0) => break LinkEnd::ByPeer,
            Ok(count) => {
                if arrivals.send(Arrival::Bytes(id, buffer[..count].to_vec())).await.is_err() {
                    return;
                }
            }
            Err(_) => break LinkEnd::Broken,
        }
    };
    let _ = arrivals.send(Arrival::End(id, end)).await;
}

async fn write(
    id: LinkId,
    mut stream: OwnedWriteHalf,
    mut queue: mpsc::UnboundedReceiver<Vec<u8>>,
    waiting: Arc<AtomicUsize>,
    arrivals: mpsc::Sender<Arrival>,
) {
    while let Some(bytes) = queue.recv().await {
        // The limit is per chunk, so that a slow peer does not count as one that does not read.
        for piece in bytes.chunks(BUFFER_BYTES) {
            let written = tokio::time::timeout(WRITE_WITHIN, stream.write_all(piece)).await;
            waiting.fetch_sub(piece.len(), Ordering::Relaxed);
            let end = match written {
                Ok(Ok(())) => continue,
                Ok(Err(_)) => LinkEnd::Broken,
                Err(_) => LinkEnd::TooSlow,
            };
            let _ = arrivals.send(Arrival::End(id, end)).await;
            return;
        }
    }
    let _ = stream.shutdown().await;
}

/// Time limit for writing a chunk. A peer that exceeds it is assumed to have stopped reading.
const WRITE_WITHIN: std::time::Duration = std::time::Duration::from_secs(10);

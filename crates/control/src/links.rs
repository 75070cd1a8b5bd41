//! The TCP side of a control process: one task reads each link, one writes it.
//!
//! What is read goes into one bounded queue, so that a process that is behind stops reading; what
//! is to be written waits, up to a bound, in a queue for each link.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use carom_proto::membership::link::{LinkEnd, LinkId, MAX_WAITING_BYTES};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

/// What happened on a link.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// Bytes, in order.
    Bytes(LinkId, Vec<u8>),
    /// The end; nothing comes after it.
    End(LinkId, LinkEnd),
}

/// All links of a control process.
#[derive(Debug)]
pub(crate) struct Links {
    links: BTreeMap<LinkId, Link>,
    next: u64,
    arrivals: mpsc::Sender<Arrival>,
    /// The writing tasks, those of links that were closed and still have something to write among
    /// them.
    writers: JoinSet<()>,
}

#[derive(Debug)]
struct Link {
    outgoing: mpsc::UnboundedSender<Vec<u8>>,
    /// Bytes that the writing task has not written yet.
    waiting: Arc<AtomicUsize>,
    reader: AbortHandle,
}

/// Arrivals that wait for the process; each has up to [`BUFFER_BYTES`].
const ARRIVALS: usize = 1024;
const BUFFER_BYTES: usize = 16 << 10;

impl Links {
    /// No links yet, and where their arrivals come out.
    pub(crate) fn new() -> (Self, mpsc::Receiver<Arrival>) {
        let (arrivals, receiver) = mpsc::channel(ARRIVALS);
        let (links, writers) = (BTreeMap::new(), JoinSet::new());
        (Self { links, next: 1, arrivals, writers }, receiver)
    }

    /// Takes over a connection that was accepted; returns the number of the new link.
    pub(crate) fn add(&mut self, stream: TcpStream) -> LinkId {
        let id = LinkId(self.next);
        self.next += 1;
        self.add_as(id, stream);
        id
    }

    /// Takes over a connection as a link of this number, which must be new.
    pub(crate) fn add_as(&mut self, id: LinkId, stream: TcpStream) {
        while self.writers.try_join_next().is_some() {}
        // It is only slower where that is refused.
        let _ = stream.set_nodelay(true);
        let (reading, writing) = stream.into_split();
        let (outgoing, queue) = mpsc::unbounded_channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let reader = tokio::spawn(read(id, reading, self.arrivals.clone())).abort_handle();
        self.writers.spawn(write(id, writing, queue, Arc::clone(&waiting), self.arrivals.clone()));
        self.links.insert(id, Link { outgoing, waiting, reader });
    }

    /// Whether the link has not ended.
    pub(crate) fn contains(&self, id: LinkId) -> bool {
        self.links.contains_key(&id)
    }

    /// Writes `bytes` after those before. A link that has ended drops them.
    ///
    /// # Errors
    /// The other end does not read: the link is closed.
    pub(crate) fn send(&mut self, id: LinkId, bytes: Vec<u8>) -> Result<(), LinkEnd> {
        let Some(link) = self.links.get(&id) else { return Ok(()) };
        let before = link.waiting.fetch_add(bytes.len(), Ordering::Relaxed);
        if before + bytes.len() > MAX_WAITING_BYTES {
            self.close(id);
            return Err(LinkEnd::TooSlow);
        }
        // The writing task may have ended; the end is on its way then.
        let _ = link.outgoing.send(bytes);
        Ok(())
    }

    /// Ends a link when what waits is written. Says whether it was there.
    pub(crate) fn close(&mut self, id: LinkId) -> bool {
        let Some(link) = self.links.remove(&id) else { return false };
        link.reader.abort();
        true
    }

    /// Ends all links, and waits until what waits is written.
    pub(crate) async fn finish(&mut self) {
        for link in std::mem::take(&mut self.links).into_values() {
            link.reader.abort();
        }
        while self.writers.join_next().await.is_some() {}
    }

    /// Ends all links; returns which there were.
    pub(crate) fn close_all(&mut self) -> Vec<LinkId> {
        let all: Vec<LinkId> = self.links.keys().copied().collect();
        for link in &all {
            self.close(*link);
        }
        all
    }

    /// How many links there are.
    pub(crate) fn len(&self) -> usize {
        self.links.len()
    }
}

/// Accepts until the receiver is gone.
pub(crate) async fn accept(listener: TcpListener, accepted: mpsc::Sender<(TcpStream, SocketAddr)>) {
    loop {
        match listener.accept().await {
            Ok(connection) => {
                if accepted.send(connection).await.is_err() {
                    return;
                }
            }
            // Too many open files, or a peer that is gone already: others may have more luck.
            Err(error) => {
                tracing::warn!(%error, "a link was not accepted");
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
        // A piece each, so that a peer that is slow is not taken for one that does not read.
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

/// A peer that does not take up a piece within this time does not read any more.
const WRITE_WITHIN: std::time::Duration = std::time::Duration::from_secs(10);

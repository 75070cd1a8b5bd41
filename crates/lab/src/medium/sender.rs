use std::io;
use std::net::{SocketAddrV4, UdpSocket};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

use super::account::Account;

/// A thread that sends the datagrams of a world, so that the engines use one processor and the
/// network another. Datagrams leave in the order in which they were added.
#[derive(Debug)]
pub(super) struct Sender {
    batch: Batch,
    batches: Option<SyncSender<Batch>>,
    thread: Option<JoinHandle<()>>,
}

/// Datagrams in one buffer.
#[derive(Debug, Default)]
struct Batch {
    datagrams: Vec<Outgoing>,
    bytes: Vec<u8>,
}

#[derive(Debug)]
struct Outgoing {
    from: usize,
    to: SocketAddrV4,
    length: usize,
}

impl Sender {
    /// Starts the thread. `sockets` are those of the hosts.
    pub(super) fn start(sockets: Vec<Option<Arc<UdpSocket>>>, account: Arc<Account>) -> Self {
        let (batches, queue) = sync_channel(MOST_BATCHES);
        let noted = Arc::clone(&account);
        let work = move || send_all(&queue, &sockets, &account);
        let thread = Builder::new().name("medium".to_owned()).spawn(work);
        if let Err(error) = &thread {
            noted.note_error("cannot start a thread", error);
        }
        Self { batch: Batch::default(), batches: Some(batches), thread: thread.ok() }
    }

    /// Adds a datagram, in two parts.
    pub(super) fn add(&mut self, from: usize, to: SocketAddrV4, first: u8, rest: &[u8]) {
        self.batch.bytes.push(first);
        self.batch.bytes.extend_from_slice(rest);
        self.batch.datagrams.push(Outgoing { from, to, length: 1 + rest.len() });
    }

    /// Returns `true` if enough datagrams were added to be worth a call to [`Self::flush`].
    pub(super) fn has_full_batch(&self) -> bool {
        self.batch.datagrams.len() >= FULL_BATCH
    }

    /// Passes all datagrams to the thread. Waits if it has too many.
    pub(super) fn flush(&mut self) {
        if self.batch.datagrams.is_empty() {
            return;
        }
        let batch = std::mem::take(&mut self.batch);
        if let Some(batches) = &self.batches {
            // Without the thread, which is in the account, nothing is sent.
            drop(batches.send(batch));
        }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.flush();
        self.batches = None;
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn send_all(queue: &Receiver<Batch>, sockets: &[Option<Arc<UdpSocket>>], account: &Account) {
    for Batch { datagrams, bytes } in queue {
        let mut rest = &bytes[..];
        for Outgoing { from, to, length } in datagrams {
            let (datagram, after) = rest.split_at(length);
            rest = after;
            let Some(socket) = &sockets[from] else { continue };
            match socket.send_to(datagram, to) {
                Ok(_) => {}
                Err(error) if is_full(&error) => account.add_kernel_drops(1),
                Err(error) => account.note_error("cannot send", &error),
            }
        }
    }
}

fn is_full(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock || error.raw_os_error() == Some(ENOBUFS)
}

const ENOBUFS: i32 = nix::errno::Errno::ENOBUFS as i32;
const MOST_BATCHES: usize = 64;
const FULL_BATCH: usize = 64;

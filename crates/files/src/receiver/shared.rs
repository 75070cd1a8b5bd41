use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::block::Block;
use crate::error::{ReceiveError, plain};
use crate::frame::{self, FetchFailure, FromReceiver, Opening, Way};
use crate::id::TransferId;
use crate::limits::SIGN_OF_LIFE;
use crate::manifest::Manifest;
use crate::offer::Offer;
use crate::peers::{Gate, Pieces, give};
use crate::progress::Event;
use crate::receiver::assembly::{Assembly, Put};
use crate::receiver::fetches::Fetch;
use crate::receiver::greeting::Greeted;
use crate::receiver::life::Life;
use crate::receiver::options::ReceiveOptions;
use crate::receiver::store::Store;
use crate::summary::Received;

const LOOK: Duration = Duration::from_millis(50);

pub(super) struct Shared {
    pub(super) store: Store,
    pub(super) options: ReceiveOptions,
    piece_port: u16,
    assembly: Mutex<Assembly>,
    gate: Gate,
    life: Mutex<Life>,
    changed: Condvar,
}

pub(super) struct Report {
    pub(super) link: Option<Arc<TcpStream>>,
    pub(super) frames: Vec<FromReceiver>,
    pub(super) is_last: bool,
}

impl Pieces for Shared {
    fn piece(&self, id: &TransferId, piece: u32) -> Option<Bytes> {
        let is_stopped = matches!(self.life().ended, Some(Err(_)));
        if *id != self.manifest().id() || is_stopped {
            return None;
        }
        self.store.read(piece)
    }
}

impl Shared {
    pub(super) fn new(
        store: Store,
        options: ReceiveOptions,
        offer: &Offer,
        piece_port: u16,
    ) -> Self {
        let manifest = &store.manifest;
        let most = (options.assembly_bytes / manifest.piece_bytes() as usize).max(2);
        let assembly = Mutex::new(Assembly::new(manifest.pieces(), most));
        let life = Life::new(store.have(), store.verified_bytes(), offer.addresses.clone());
        let (life, changed) = (Mutex::new(life), Condvar::new());
        let gate = Gate::default();
        Self { store, options, piece_port, assembly, gate, life, changed }
    }

    pub(super) fn manifest(&self) -> &Manifest {
        &self.store.manifest
    }

    pub(super) fn life(&self) -> MutexGuard<'_, Life> {
        self.life.lock().expect("no panic while the lock is held")
    }

    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Life) -> T) -> T {
        let changed = change(&mut self.life());
        self.changed.notify_all();
        changed
    }

    fn wait_on<'a>(&self, life: MutexGuard<'a, Life>) -> MutexGuard<'a, Life> {
        self.changed.wait(life).expect("no panic while the lock is held")
    }

    fn wait_for<'a>(&self, life: MutexGuard<'a, Life>, time: Duration) -> MutexGuard<'a, Life> {
        self.changed.wait_timeout(life, time).expect("no panic while the lock is held").0
    }

    fn assembly(&self) -> MutexGuard<'_, Assembly> {
        self.assembly.lock().expect("no panic while the lock is held")
    }

    pub(super) fn report(&self, event: Event) {
        self.options.reporter.report(event);
    }

    pub(super) fn on_block(&self, message: &Bytes) {
        let block = Block::decode(message).filter(|block| block.tag == self.manifest().id().tag());
        let place = block.as_ref().and_then(|block| self.manifest().place(block.piece));
        let (Some(block), Some(place)) = (block, place) else {
            self.life().received.blocks_foreign += 1;
            return;
        };
        let mut life = self.life();
        life.block_at = Instant::now();
        if life.known.contains(block.piece) || life.is_ending() {
            life.received.blocks_duplicate += 1;
            return;
        }
        drop(life);
        let put = self.assembly().put(block.piece, place.bytes, block.offset, &block.data);
        match put {
            Put::Kept(None) => {}
            Put::Kept(Some(given_up)) => self.missed(given_up, false),
            Put::Duplicate => self.life().received.blocks_duplicate += 1,
            Put::Dropped => self.life().received.blocks_dropped += 1,
            Put::Nonsense => self.life().received.blocks_foreign += 1,
            Put::Complete(bytes) if self.manifest().is_piece(block.piece, &bytes) => {
                self.accept(Way::Stream, block.piece, &bytes);
                self.assembly().take_back(bytes);
            }
            Put::Complete(_) => {
                self.report(Event::Wrong { piece: block.piece, from: None });
                self.assembly().give_up(block.piece);
                self.missed(block.piece, true);
            }
        }
    }

    fn missed(&self, piece: u32, is_wrong: bool) {
        self.change(|life| {
            life.received.wrong_pieces += u64::from(is_wrong);
            life.outbox.missed(piece, is_wrong);
        });
    }

    pub(super) fn accept(&self, way: Way, piece: u32, bytes: &[u8]) {
        if let Err(error) = self.store.write(piece, bytes) {
            return self.fail(error);
        }
        if way != Way::Stream {
            self.assembly().forget(piece);
        }
        self.life().accept(way, piece, bytes.len() as u64);
        let of = self.manifest().data_bytes();
        self.report(Event::Verified { bytes: self.store.verified_bytes(), of });
        self.changed.notify_all();
    }

    pub(super) fn fail(&self, error: ReceiveError) {
        self.change(|life| {
            if !life.is_complete() {
                life.end(Err(error));
                self.store.close();
            }
        });
    }

    pub(super) fn aborted(&self, reason: String, discard: bool) {
        // The lock is held until the data is removed. Meanwhile, the last piece must not arrive,
        // and a caller must not exit.
        self.change(|life| {
            if life.is_complete() || life.is_ending() {
                return;
            }
            life.end(Err(if discard {
                self.store.discard();
                ReceiveError::Discarded(reason)
            } else {
                self.store.close();
                ReceiveError::Aborted(reason)
            }));
        });
    }

    pub(super) fn done(&self) {
        self.change(|life| {
            if !life.is_complete() {
                let reason = "it did not wait for this receiver".to_owned();
                life.end(Err(ReceiveError::Aborted(reason)));
            }
            life.received.sender_knows = life.is_complete();
        });
    }

    pub(super) fn link(&self, greeted: &Greeted) -> Result<(), ReceiveError> {
        let known = self.life().begin_link();
        self.assembly().restart();
        let (has, of) = (known.count(), known.pieces());
        let ready = FromReceiver::Ready {
            key: self.store.key(),
            piece_port: self.piece_port,
            have: known.to_bytes(),
        };
        let lost = |error: std::io::Error| ReceiveError::Unreachable(plain(&error));
        frame::write(&mut &greeted.stream, &ready).map_err(lost)?;
        let link = greeted.stream.try_clone().map_err(lost)?;
        self.life().link = Some((Arc::new(link), greeted.address));
        self.report(Event::Connected { has, of, bytes: self.manifest().data_bytes() });
        self.changed.notify_all();
        Ok(())
    }

    /// Handles the loss of the connection. Returns `false` if the sender is no longer needed.
    pub(super) fn unlink(&self) -> bool {
        self.change(|life| {
            life.link = None;
            life.fetches.clear();
            // The result has been reported, or can no longer be reported.
            life.close();
            !life.is_complete() && !life.is_ending()
        })
    }

    pub(super) fn addresses(&self) -> Option<Vec<SocketAddr>> {
        let life = self.life();
        let is_looked_for = !life.is_complete() && !life.is_ending();
        is_looked_for.then(|| life.addresses.clone())
    }

    pub(super) fn pause(&self, time: Duration) -> Option<()> {
        let until = Instant::now() + time;
        let mut life = self.life();
        while !life.is_ending() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Some(());
            }
            life = self.wait_for(life, left);
        }
        None
    }

    pub(super) fn next_fetch(&self) -> Option<(Fetch, SocketAddr)> {
        let mut life = self.life();
        loop {
            if life.is_ending() {
                return None;
            }
            let sender = life.link.as_ref().map(|(_, address)| *address);
            if let Some(next) = sender.and_then(|sender| Some((life.fetches.pop()?, sender))) {
                return Some(next);
            }
            life = self.wait_on(life);
        }
    }

    pub(super) fn finish(&self) {
        let mut life = self.life();
        while !life.is_ending() && !life.is_complete() {
            life = self.wait_on(life);
        }
        if life.is_ending() {
            // A piece in flight at that moment may have been the last one.
            return;
        }
        drop(life);
        let published = self.store.publish();
        if published.is_ok() {
            self.report(Event::Finished);
        }
        self.change(|life| life.end(published));
    }

    pub(super) fn stop(&self) {
        self.change(|life| {
            if !life.is_complete() {
                life.end(Err(ReceiveError::Stopped));
            }
            // The final names do not wait for other receivers.
            life.close();
            if let Some((link, _)) = &life.link {
                let _ = link.shutdown(Shutdown::Both);
            }
        });
    }

    pub(super) fn wait(&self) -> Result<Received, ReceiveError> {
        let mut life = self.life();
        loop {
            if let Some(ended) = &life.ended {
                return ended.clone().map(|()| life.received.clone());
            }
            life = self.wait_on(life);
        }
    }

    pub(super) fn next_report(&self, last_at: Instant) -> Option<Report> {
        let settle = self.options.settle;
        let mut life = self.life();
        while life.ended.is_none()
            && !life.has_to_tell(last_at.elapsed(), settle)
            && last_at.elapsed() < SIGN_OF_LIFE
        {
            life = self.wait_for(life, LOOK);
        }
        if life.ended.is_some() {
            return None;
        }
        let (link, frames) = life.take_frames(settle);
        Some(Report { link, frames, is_last: life.takes_last_word() })
    }

    pub(super) fn fetch_failed(&self, fetch: Fetch, why: FetchFailure) {
        self.change(|life| {
            if why == FetchFailure::Wrong {
                life.received.wrong_pieces += 1;
                if let Some(peer) = fetch.address {
                    life.fetches.distrust(peer);
                }
            }
            life.outbox.fetch_failed(fetch.piece, fetch.source, why);
        });
    }

    pub(super) fn serve(&self, stream: &TcpStream, opening: Opening) {
        if let Err(error) = give(stream, self, &self.gate, opening) {
            tracing::trace!(%error, "a connection for pieces has ended");
        }
    }
}

#[cfg(test)]
#[path = "ending_tests.rs"]
mod tests;

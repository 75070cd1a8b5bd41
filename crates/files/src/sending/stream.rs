//! The stream, from the wait for receivers to the end of the last one.

use std::sync::MutexGuard;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bytes::Bytes;

use crate::block::{BLOCK_HEADER_BYTES, Block};
use crate::error::SendError;
use crate::frame::FromSender;
use crate::progress::Event;
use crate::sending::{Phase, Shared, TransferState};
use crate::sink::BlockSink;
use crate::summary::{State, Summary};

/// What to do with a piece.
enum Next {
    Send,
    Skip,
}

impl Shared {
    pub(super) fn run(&self, sink: &mut dyn BlockSink) -> Result<Summary, SendError> {
        let room = sink.largest().saturating_sub(BLOCK_HEADER_BYTES);
        if room == 0 {
            return Err(SendError::Options("the stream's messages are too small for a block"));
        }
        let receivers = self.wait_for_receivers()?;
        self.report(Event::Began { receivers });
        let pieces = self.content.manifest.pieces();
        for piece in 0..pieces {
            match self.next(piece)? {
                Next::Send => self.send(piece, room, sink)?,
                Next::Skip => self.state().pieces_skipped += 1,
            }
            let bytes = self.state().streamed_bytes;
            self.report(Event::Streamed { pieces: piece + 1, of: pieces, bytes });
        }
        sink.flush()?;
        self.over();
        self.wait_for_all()
    }

    /// Waits until the stream can begin, and says how many receivers are ready.
    fn wait_for_receivers(&self) -> Result<usize, SendError> {
        let began = Instant::now();
        let when = self.options.start;
        let mut state = self.state();
        loop {
            check(&mut state)?;
            // Who had everything already has taken part, too.
            let rows = state.roster.rows().iter();
            let ready = rows.filter(|row| row.is_taking_part()).count();
            let is_late = when.after.is_some_and(|after| began.elapsed() >= after);
            if when.receivers.is_some_and(|receivers| ready >= receivers) || (is_late && ready > 0)
            {
                return Ok(ready);
            }
            // One that reads what it has from its disk may need long for it.
            if is_late && self.preparing.load(Ordering::Relaxed) == 0 {
                return Err(SendError::NoReceivers);
            }
            state = self.wait(state);
        }
    }

    /// Moves the stream on to `piece`, and says whether anybody lacks it. If nobody is connected
    /// who lacks anything, but somebody is only just lost, it waits: what comes by the stream need
    /// not be fetched one by one.
    fn next(&self, piece: u32) -> Result<Next, SendError> {
        let mut state = self.state();
        loop {
            check(&mut state)?;
            let rows = state.roster.rows();
            let mut receiving = rows.iter().filter(|row| row.is_receiving()).peekable();
            let is_anybody = receiving.peek().is_some();
            let is_lacked = receiving.any(|row| !row.have.contains(piece));
            let is_awaited = rows.iter().any(|row| {
                row.told.state == State::Gone && row.moved_at.elapsed() < self.options.patience
            });
            if is_anybody || !is_awaited {
                // In one go with the decision: who becomes ready after it fetches the piece.
                state.phase = Phase::Streaming(piece + 1);
                return Ok(if is_lacked { Next::Send } else { Next::Skip });
            }
            state = self.wait(state);
        }
    }

    fn send(&self, piece: u32, room: usize, sink: &mut dyn BlockSink) -> Result<(), SendError> {
        let bytes: Bytes = self.content.read(piece)?;
        let id = self.content.manifest.id();
        let mut offset = 0;
        for data in bytes.chunks(room) {
            sink.send(Block::encode(&id, piece, offset, data))?;
            offset += data.len() as u32;
        }
        self.state().streamed_bytes += bytes.len() as u64;
        Ok(())
    }

    fn over(&self) {
        let mut state = self.state();
        state.phase = Phase::Over;
        state.over_at = Some(Instant::now());
        for index in 0..state.roster.rows().len() {
            let row = state.roster.row_mut(index);
            if row.is_receiving() {
                row.moved_at = Instant::now();
                row.tell(FromSender::StreamOver);
            }
        }
        drop(state);
        self.report(Event::StreamOver);
        self.wake();
    }

    /// Waits until there is nobody left to wait for.
    fn wait_for_all(&self) -> Result<Summary, SendError> {
        let mut state = self.state();
        loop {
            check(&mut state)?;
            let patience = self.options.patience;
            // One that only waits for its turn moves when the others do.
            let is_moving = state.roster.rows().iter().any(|row| row.is_moving(patience));
            // Neither is anybody who reads what it has from its disk left behind.
            let mut is_awaited = self.preparing.load(Ordering::Relaxed) > 0;
            for index in 0..state.roster.rows().len() {
                is_awaited |= self.is_awaited(&mut state, index, is_moving);
            }
            if !is_awaited {
                return Ok(self.summary(&state));
            }
            state = self.wait(state);
        }
    }

    /// Whether to wait for a receiver. When nobody gets anything for longer than the patience,
    /// those who lack something have failed.
    fn is_awaited(&self, state: &mut TransferState, index: usize, is_moving: bool) -> bool {
        let patience = self.options.patience;
        let row = state.roster.row(index);
        match row.told.state {
            State::Finished | State::Failed(_) => false,
            State::Gone => row.moved_at.elapsed() < patience,
            // With all pieces, it gives them their names; that it lives, it says by itself.
            State::Receiving if is_moving || row.have.is_full() => true,
            State::Receiving => {
                let (name, reason) =
                    (row.told.name.clone(), format!("nothing has moved for {patience:?}"));
                state.roster.give_up(index, reason.clone());
                self.report(Event::ReceiverFailed { name, reason });
                false
            }
        }
    }

    fn summary(&self, state: &MutexGuard<'_, TransferState>) -> Summary {
        let manifest = &self.content.manifest;
        Summary {
            id: manifest.id(),
            pieces: manifest.pieces(),
            total_bytes: manifest.total_bytes(),
            data_bytes: manifest.data_bytes(),
            stream_bytes: state.streamed_bytes,
            pieces_skipped: state.pieces_skipped,
            sender_bytes: state.served_bytes,
            receivers: state.roster.rows().iter().map(|row| row.told.clone()).collect(),
        }
    }
}

/// What has ended the transfer, if anything has.
fn check(state: &mut TransferState) -> Result<(), SendError> {
    state.broken.take().map_or(Ok(()), Err)
}

//! The course of a transfer, from the wait for receivers to the end of the last receiver.

use std::sync::MutexGuard;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::block::{BLOCK_HEADER_BYTES, Block};
use crate::block_sink::BlockSink;
use crate::error::SendError;
use crate::frame::FromSender;
use crate::limits::SLOWEST_DISK;
use crate::progress::Event;
use crate::sender::shared::{Phase, Shared, TransferState};
use crate::summary::{State, Summary};

const WAITING_TOLD_EVERY: Duration = Duration::from_secs(3);

enum Next {
    Send,
    Skip,
}

impl Shared {
    pub(super) fn run(&self, sink: &mut dyn BlockSink) -> Result<Summary, SendError> {
        let room = |sink: &dyn BlockSink| sink.largest().saturating_sub(BLOCK_HEADER_BYTES);
        if room(sink) == 0 {
            return Err(SendError::Options("the stream's messages are too small for a block"));
        }
        let receivers = self.wait_for_receivers()?;
        // The stream may have changed its maximum message size in the meantime.
        let room = room(sink).max(1);
        if receivers == 0 {
            return Ok(self.summary(&self.state()));
        }
        self.report(Event::Began { receivers });
        let pieces = self.content.manifest.pieces();
        for piece in 0..pieces {
            match self.next(piece)? {
                Next::Send => self.send(piece, room, sink).map_err(|error| self.why(error))?,
                Next::Skip => self.state().pieces_skipped += 1,
            }
            let bytes = self.state().streamed_bytes;
            self.report(Event::Streamed { pieces: piece + 1, of: pieces, bytes });
        }
        sink.flush().map_err(|error| self.why(error.into()))?;
        self.over();
        self.wait_for_all()
    }

    /// Returns the error with which the transfer ends: the recorded reason, such as a cancellation
    /// or a failed source, or `error` if none was recorded.
    fn why(&self, error: SendError) -> SendError {
        self.state().broken.take().unwrap_or(error)
    }

    /// Waits for the start. Returns the number of ready receivers, or 0 if all have failed.
    fn wait_for_receivers(&self) -> Result<usize, SendError> {
        let mut told_at = Instant::now();
        let began = Instant::now();
        let when = self.options.start;
        let mut state = self.state();
        loop {
            check(&mut state)?;
            // A receiver that verifies existing data may need a long time to become ready.
            self.give_up_overdue(&mut state);
            let is_settled = state.roster.preparing.is_empty();
            let (ready, failed) = self.turnout(&state);
            let is_late = when.after.is_some_and(|after| began.elapsed() >= after);
            let of = when.receivers;
            let is_met = of.is_some_and(|of| ready >= of)
                || (is_late && ready > 0)
                // Failed receivers are not waited for, but those that are preparing are.
                || (is_settled && of.is_some_and(|of| ready + failed >= of))
                || (is_settled && is_late && failed > 0);
            if is_met {
                return Ok(ready);
            }
            if is_late && is_settled {
                return Err(SendError::NoReceivers);
            }
            if told_at.elapsed() >= WAITING_TOLD_EVERY {
                told_at = Instant::now();
                self.report(Event::Waiting { ready, failed, of });
            }
            state = self.wait(state);
        }
    }

    /// Returns the numbers of ready receivers, and of those that failed or are gone too long.
    fn turnout(&self, state: &TransferState) -> (usize, usize) {
        let rows = &state.roster.rows;
        let ready = rows.iter().filter(|row| row.is_taking_part()).count();
        let failed = rows.iter().filter(|row| match row.told.state {
            State::Failed(_) => true,
            State::Gone => row.moved_at.elapsed() >= self.options.patience,
            State::Receiving | State::Finished => false,
        });
        (ready, failed.count())
    }

    /// Decides whether a piece is sent, which is the case if a connected receiver lacks it.
    ///
    /// If no receiver is connected but some were lost recently, waits for one to return, because
    /// they would otherwise have to fetch the piece.
    fn next(&self, piece: u32) -> Result<Next, SendError> {
        let mut state = self.state();
        loop {
            check(&mut state)?;
            let rows = &state.roster.rows;
            let mut receiving = rows.iter().filter(|row| row.is_receiving()).peekable();
            let is_anybody = receiving.peek().is_some();
            let is_lacked = receiving.any(|row| !row.have.contains(piece));
            let is_awaited = rows.iter().any(|row| {
                row.told.state == State::Gone && row.moved_at.elapsed() < self.options.patience
            });
            if is_anybody || !is_awaited {
                // A receiver that becomes ready later fetches the piece.
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
        for row in state.roster.rows.iter_mut().filter(|row| row.is_receiving()) {
            row.moved_at = Instant::now();
            row.tell(FromSender::StreamOver);
        }
        drop(state);
        self.report(Event::StreamOver);
        self.wake();
    }

    fn wait_for_all(&self) -> Result<Summary, SendError> {
        let mut state = self.state();
        loop {
            check(&mut state)?;
            let patience = self.options.patience;
            // A receiver whose fetches wait for a busy source makes progress while other receivers
            // do.
            let is_moving = state.roster.rows.iter().any(|row| row.is_moving(patience));
            // Receivers that are verifying existing data are waited for as well.
            self.give_up_overdue(&mut state);
            let mut is_awaited = !state.roster.preparing.is_empty();
            for index in 0..state.roster.rows.len() {
                is_awaited |= self.is_awaited(&mut state, index, is_moving);
            }
            if !is_awaited {
                return Ok(self.summary(&state));
            }
            if !state.roster.is_anybody_lacking() {
                state.roster.release_finished();
            }
            state = self.wait(state);
        }
    }

    /// Returns `true` if a receiver is still waited for. Fails it if no receiver obtains a piece
    /// for `patience`, or if it has all pieces but does not finish within
    /// [`disk_patience`](Self::disk_patience).
    fn is_awaited(&self, state: &mut TransferState, index: usize, is_moving: bool) -> bool {
        let patience = self.options.patience;
        let row = &state.roster.rows[index];
        let reason = match row.told.state {
            State::Finished | State::Failed(_) => return false,
            State::Gone => return row.moved_at.elapsed() < patience,
            State::Receiving if row.have.is_full() => {
                let patience = self.disk_patience();
                if row.moved_at.elapsed() < patience {
                    return true;
                }
                format!("all pieces received, but not finished within {patience:?}")
            }
            State::Receiving if is_moving => return true,
            State::Receiving => format!("no progress for {patience:?}"),
        };
        let name = row.told.name.clone();
        state.roster.give_up(index, reason.clone());
        self.report(Event::ReceiverFailed { name, reason });
        false
    }

    /// Returns the time without progress after which a receiver fails although it still sends
    /// keepalives. Until then, it is assumed to be using a slow disk.
    pub(super) fn disk_patience(&self) -> Duration {
        let bytes = self.content.manifest.data_bytes();
        self.options.patience + Duration::from_secs(bytes / SLOWEST_DISK)
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
            connections_refused: self.refused.load(Ordering::Relaxed),
            receivers: state.roster.rows.iter().map(|row| row.told.clone()).collect(),
        }
    }
}

fn check(state: &mut TransferState) -> Result<(), SendError> {
    state.broken.take().map_or(Ok(()), Err)
}

//! How a transfer ended, for each receiver.

use std::net::IpAddr;

use crate::id::TransferId;

/// What has become of a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It is connected and receives.
    Receiving,
    /// It has everything, verified and under its final name.
    Finished,
    /// It has given up, for this reason.
    Failed(String),
    /// The connection was lost. It may come back and goes on from where it was.
    Gone,
}

/// One receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiverRow {
    /// What it calls itself.
    pub name: String,
    /// The host that it connected from.
    pub host: IpAddr,
    /// What has become of it.
    pub state: State,
    /// Pieces that it has verified and written.
    pub pieces: u32,
    /// Bytes of pieces that it got by the stream.
    pub stream_bytes: u64,
    /// Bytes of pieces that it fetched from other receivers.
    pub peer_bytes: u64,
    /// Bytes of pieces that it fetched from the sender over TCP.
    pub sender_bytes: u64,
    /// Bytes of pieces that it had already when it first connected.
    pub resumed_bytes: u64,
    /// Pieces that were wrong when they came, by the stream or from somebody.
    pub wrong_pieces: u64,
}

/// A transfer that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Which.
    pub id: TransferId,
    /// Pieces of the transfer.
    pub pieces: u32,
    /// Bytes of files, holes included.
    pub total_bytes: u64,
    /// Bytes of pieces.
    pub data_bytes: u64,
    /// Bytes of files that were multicast.
    pub stream_bytes: u64,
    /// Pieces that were not multicast, because no receiver lacked them.
    pub pieces_skipped: u32,
    /// Bytes of pieces that receivers fetched from the sender over TCP.
    pub sender_bytes: u64,
    /// Connections that were closed before they were served: they said nothing in time, nothing
    /// that is understood, or there were too many.
    pub connections_refused: u64,
    /// All receivers that have said hello and were not refused, in the order in which they became
    /// ready, failed or were lost.
    pub receivers: Vec<ReceiverRow>,
}

impl Summary {
    /// Whether every receiver has everything.
    pub fn is_success(&self) -> bool {
        !self.receivers.is_empty() && self.not_finished().next().is_none()
    }

    /// Those who have not got everything.
    pub fn not_finished(&self) -> impl Iterator<Item = &ReceiverRow> {
        self.receivers.iter().filter(|row| row.state != State::Finished)
    }
}

/// What a receiver has got.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Bytes of pieces that came by the stream.
    pub stream_bytes: u64,
    /// Bytes of pieces that came from other receivers.
    pub peer_bytes: u64,
    /// Bytes of pieces that came from the sender over TCP.
    pub sender_bytes: u64,
    /// Bytes of pieces that were here already.
    pub resumed_bytes: u64,
    /// Blocks that were not read, as they are of another transfer or of none.
    pub blocks_foreign: u64,
    /// Blocks of what was here already.
    pub blocks_duplicate: u64,
    /// Blocks that did not fit anywhere: their pieces are fetched.
    pub blocks_dropped: u64,
    /// Pieces that were wrong when they came.
    pub wrong_pieces: u64,
    /// Whether the sender knows that this receiver has finished.
    pub sender_knows: bool,
}

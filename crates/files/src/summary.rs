use std::net::IpAddr;

use crate::id::TransferId;

/// The state of a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// Connected and receiving.
    Receiving,
    /// All entries are verified and have their final names.
    Finished,
    /// The receiver or the sender gave up, for this reason.
    Failed(String),
    /// The connection was lost. The receiver may return and resume.
    Gone,
}

/// The row of a receiver in the summary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiverRow {
    /// Name that the receiver has given.
    pub name: String,
    /// Host from which the receiver connected.
    pub host: IpAddr,
    /// Current or final state.
    pub state: State,
    /// Number of pieces that the receiver has verified and written.
    pub pieces: u32,
    /// Bytes of pieces that the receiver obtained from the stream.
    pub stream_bytes: u64,
    /// Bytes of pieces that the receiver fetched from other receivers.
    pub peer_bytes: u64,
    /// Bytes of pieces that the receiver fetched from the sender over TCP.
    pub sender_bytes: u64,
    /// Bytes of pieces that the receiver had when it connected, and had not reported before.
    pub resumed_bytes: u64,
    /// Number of pieces received with a wrong hash, from any source.
    pub wrong_pieces: u64,
}

/// The summary of a transfer that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Id of the transfer.
    pub id: TransferId,
    /// Number of pieces in the transfer.
    pub pieces: u32,
    /// Total size of all files, in bytes, including holes.
    pub total_bytes: u64,
    /// Total size of all pieces, in bytes.
    pub data_bytes: u64,
    /// Bytes of file data that were multicast.
    pub stream_bytes: u64,
    /// Number of pieces that were not multicast because no connected receiver lacked them.
    pub pieces_skipped: u32,
    /// Bytes of pieces that the sender served over TCP.
    pub sender_bytes: u64,
    /// Number of connections that were closed before they were served.
    pub connections_refused: u64,
    /// All receivers that were not refused, in the order in which they first became ready, failed
    /// or were lost.
    pub receivers: Vec<ReceiverRow>,
}

impl Summary {
    /// Returns `true` if the transfer has at least one receiver and all receivers have finished.
    pub fn is_success(&self) -> bool {
        !self.receivers.is_empty() && self.not_finished().next().is_none()
    }

    /// Returns the receivers that have not finished.
    pub fn not_finished(&self) -> impl Iterator<Item = &ReceiverRow> {
        self.receivers.iter().filter(|row| row.state != State::Finished)
    }
}

/// The result of a receiver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Bytes of pieces received from the stream.
    pub stream_bytes: u64,
    /// Bytes of pieces fetched from other receivers.
    pub peer_bytes: u64,
    /// Bytes of pieces fetched from the sender over TCP.
    pub sender_bytes: u64,
    /// Bytes of pieces that existed when the receiver started.
    pub resumed_bytes: u64,
    /// Number of messages that were not valid blocks of this transfer.
    pub blocks_foreign: u64,
    /// Number of blocks whose data had already been received, or that came after the end.
    pub blocks_duplicate: u64,
    /// Number of blocks of pieces that the receiver had given up in the stream and fetches instead.
    pub blocks_dropped: u64,
    /// Number of pieces received with a wrong hash.
    pub wrong_pieces: u64,
    /// `true` if the sender reported the end of the transfer after this receiver had all pieces.
    pub sender_knows: bool,
}

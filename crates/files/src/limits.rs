//! The bounds of everything that comes from somebody else.

use std::time::Duration;

/// The smallest piece size, for transfers of up to 64 GiB.
pub const MIN_PIECE_BYTES: u32 = 1 << 20;
/// The largest piece size.
pub const MAX_PIECE_BYTES: u32 = 1 << 24;
/// The piece size is doubled until a transfer has no more pieces than this, by its bytes alone.
pub(crate) const PIECES_AIMED_AT: u64 = 1 << 16;

/// The most files, directories and symlinks of one transfer.
pub const MAX_ENTRIES: u32 = 1 << 20;
/// The most pieces of one transfer.
pub const MAX_PIECES: u32 = 1 << 21;
/// The most holes of all files of one transfer together.
pub const MAX_HOLES: u32 = 1 << 20;
/// A hole that is shorter is sent as the zeros that it reads as.
pub(crate) const MIN_HOLE_BYTES: u64 = 1 << 16;
/// The longest path of an entry, in bytes.
pub const MAX_PATH_BYTES: usize = 4096;
/// The longest component of a path, in bytes.
pub const MAX_NAME_BYTES: usize = 255;
/// The most components of a path.
pub const MAX_COMPONENTS: usize = 128;
/// The largest file, so that no sum of offsets leaves an `i64`.
pub const MAX_FILE_BYTES: u64 = 1 << 60;
/// The longest manifest, encoded.
pub const MAX_MANIFEST_BYTES: u32 = 128 << 20;
/// The longest frame, which has a bit for each piece in it.
pub const MAX_FRAME_BYTES: u32 = MAX_PIECES / 8 + 1024;
/// The longest encoded offer.
pub const MAX_OFFER_BYTES: usize = 1024;
/// The most addresses in an offer.
pub const MAX_ADDRESSES: usize = 8;
/// The longest name of a transfer or receiver, and the longest reason of a failure, in bytes.
pub const MAX_TEXT_BYTES: usize = 255;
/// The most ranges of pieces in one frame.
pub(crate) const MAX_RANGES: usize = 4096;
/// The most ranges of bytes that an incomplete piece is kept in.
pub(crate) const MAX_BLOCKS_APART: usize = 4096;

/// Fetches that a receiver is told to make at a time.
pub(crate) const FETCHES_PER_RECEIVER: usize = 6;
/// Connections for pieces that a receiver or the sender has at a time; most of them wait.
pub(crate) const PIECE_CONNECTIONS: usize = 256;
/// Pieces that a receiver or the sender reads and gives at a time, whoever asks.
pub(crate) const PIECES_GIVEN_AT_A_TIME: usize = 16;
/// Who asks for pieces and does not ask for another one so soon has to connect again.
pub(crate) const PIECE_PAUSE: Duration = Duration::from_millis(250);
/// A piece that comes at a lower rate than so many bytes a second is given up.
pub(crate) const SLOWEST_PIECE: u32 = 128 << 10;
/// Bytes in a second that the disk of a receiver reads or writes at least, while it says no more
/// than that it lives.
pub(crate) const SLOWEST_DISK: u64 = 8 << 20;
/// What a receiver got by the stream it says so often; what others wait for, at once.
pub(crate) const REPORT: Duration = Duration::from_millis(200);
/// Frames that wait to be written to one receiver.
pub(crate) const FRAMES_WAITING: usize = 64;
/// Who says nothing for so long, while something is expected, is taken for gone.
pub(crate) const SILENCE: Duration = Duration::from_secs(10);
/// Both ends of a connection say something at least so often.
pub(crate) const SIGN_OF_LIFE: Duration = Duration::from_secs(2);
/// Threads for connections need no more than this.
pub(crate) const STACK_BYTES: usize = 256 << 10;
/// A piece that was got wrong from the sender itself so often is not to be had.
pub(crate) const MAX_WRONG_FROM_SENDER: u32 = 3;

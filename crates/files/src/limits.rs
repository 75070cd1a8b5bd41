//! Limits for all data that is received from other hosts, and further constants of transfers.

use std::time::Duration;

/// Minimum piece size, in bytes, used for transfers of up to 64 GiB. The last piece of a file may
/// be shorter.
pub const MIN_PIECE_BYTES: u32 = 1 << 20;
/// Maximum size of a piece, in bytes.
pub const MAX_PIECE_BYTES: u32 = 1 << 24;
/// Target number of pieces. The piece size is doubled, up to its maximum, until this suffices.
pub(crate) const PIECES_AIMED_AT: u64 = 1 << 16;

/// Maximum number of entries in a transfer.
pub const MAX_ENTRIES: u32 = 1 << 20;
/// Maximum number of pieces in a transfer.
pub const MAX_PIECES: u32 = 1 << 21;
/// Maximum number of holes in all files of a transfer.
pub const MAX_HOLES: u32 = 1 << 20;
/// Minimum size, in bytes, of a hole that the sender omits. Shorter holes are sent as zeros.
pub(crate) const MIN_HOLE_BYTES: u64 = 1 << 16;
/// Maximum length of an entry's path, in bytes.
pub const MAX_PATH_BYTES: usize = 4096;
/// Maximum length of a path component, in bytes.
pub const MAX_NAME_BYTES: usize = 255;
/// Maximum number of components of a path.
pub const MAX_COMPONENTS: usize = 128;
/// Maximum size of a file, in bytes. It keeps sums of offsets within an `i64`.
pub const MAX_FILE_BYTES: u64 = 1 << 60;
/// Maximum size of an encoded manifest, in bytes.
pub const MAX_MANIFEST_BYTES: u32 = 128 << 20;
/// Maximum size of a frame, in bytes. The largest frame has a bit for each piece.
pub const MAX_FRAME_BYTES: u32 = MAX_PIECES / 8 + 1024;
/// Maximum size of an encoded offer, in bytes.
pub const MAX_OFFER_BYTES: usize = 1024;
/// Maximum number of addresses in an offer.
pub const MAX_ADDRESSES: usize = 8;
/// Maximum length, in bytes, of the name of a transfer or receiver and of the reason for a failure.
pub const MAX_TEXT_BYTES: usize = 255;
pub(crate) const MAX_RANGES: usize = 4096;
pub(crate) const MAX_BLOCKS_APART: usize = 4096;

pub(crate) const FETCHES_PER_RECEIVER: usize = 6;
/// Maximum number of connections for pieces. Most of them wait, because fewer pieces are served at
/// a time.
pub(crate) const PIECE_CONNECTIONS: usize = 256;
pub(crate) const PIECES_GIVEN_AT_A_TIME: usize = 16;
/// Idle time after which a connection for pieces is closed.
pub(crate) const PIECE_PAUSE: Duration = Duration::from_millis(250);
/// Minimum rate of a piece transfer, in bytes per second, apart from a delay of [`SILENCE`].
pub(crate) const SLOWEST_PIECE: u32 = 128 << 10;
/// Assumed speed of a disk, in bytes per second, while its receiver sends only keepalives.
pub(crate) const SLOWEST_DISK: u64 = 8 << 20;
/// Interval of reports. Reports of missed and fetched pieces are sent at once.
pub(crate) const REPORT: Duration = Duration::from_millis(200);
pub(crate) const FRAMES_WAITING: usize = 64;
/// Time without expected data after which a connection counts as lost.
pub(crate) const SILENCE: Duration = Duration::from_secs(10);
pub(crate) const SIGN_OF_LIFE: Duration = Duration::from_secs(2);
pub(crate) const STACK_BYTES: usize = 256 << 10;
/// Number of wrong pieces from the sender itself at which a receiver fails.
pub(crate) const MAX_WRONG_FROM_SENDER: u32 = 3;

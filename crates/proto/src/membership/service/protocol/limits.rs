/// First field of a hello.
pub const MAGIC: u32 = 0xCA70_6D73;
/// Version of the protocol.
pub const VERSION: u16 = 3;
/// Maximum size of a frame in bytes, including its kind and excluding its length.
pub const MAX_FRAME_BYTES: usize = 1 << 20;
/// Maximum size of a frame to a registry process in bytes, counted like [`MAX_FRAME_BYTES`].
///
/// It bounds the memory that incomplete frames hold on thousands of connections.
pub const MAX_REQUEST_BYTES: usize = 1 << 10;
/// Maximum number of partitions of a cluster.
pub const MAX_PARTITIONS: u16 = 4096;
/// Partition whose owner runs the multicast manager of all groups.
pub const MANAGER_PARTITION: u16 = 0;
/// Maximum number of members in one frame. Longer lists are sent in several frames.
pub const MAX_MEMBERS_PER_FRAME: usize = 26_000;
/// Maximum size of a text in a frame, in bytes.
pub const MAX_TEXT_BYTES: usize = 255;

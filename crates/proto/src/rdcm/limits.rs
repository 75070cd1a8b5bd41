pub(super) const UDP_AND_IP_BYTES: usize = 48;
/// Maximum value of [`Config::message_bytes`](super::Config::message_bytes).
pub const MAX_MESSAGE_BYTES: usize = 1 << 20;
/// Minimum path MTU, with which a packet can contain two acknowledgments with all their ranges.
pub(super) const MIN_MTU: usize = 700;
/// Maximum number of links at one vertex of a topology.
pub const MAX_PORTS: usize = 128;
/// Maximum number of receivers to which one receiver relays packets.
pub const MAX_RELAYS: usize = 16;
/// Maximum number of ranges in an acknowledgment or a request.
pub const MAX_RANGES: usize = 32;

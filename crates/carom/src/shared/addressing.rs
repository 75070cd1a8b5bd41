pub use carom_proto::{MulticastPool, PoolParseError};

/// The ways in which a node reaches the members of its groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathChoice {
    /// Multicast, with unicast copies for members that have not confirmed that they receive it. The
    /// default.
    #[default]
    Auto,
    /// Multicast only. Choose this if all members are known to receive multicast.
    Multicast,
    /// Unicast copies only. Choose this where multicast is blocked.
    Unicast,
}

pub(crate) const DEFAULT_PORT: u16 = 7400;
pub(crate) const DEFAULT_MULTICAST_PORT: u16 = 7401;

//! Settings, counters and contract of the engines, which no version number protects.
//!
//! An engine changes as its protocol is tuned: these types can change with every release, also
//! incompatibly. Programs that use only the rest of the crate are not affected.
//!
//! [`lateral`] carries time-critical groups, [`rmp`] ordered groups and [`rdcm`] bulk groups.
//! [`Engine`] is the contract of a custom engine; see [`Builder::guest`](crate::Builder::guest).

pub use carom_proto::node::NodeCounters;
pub use carom_proto::{Engine, lateral, rdcm, rmp};

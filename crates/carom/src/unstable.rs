//! Settings and counters of the engines, and the contract for custom engines, without semver
//! guarantees.
//!
//! An engine changes as its protocol is tuned, so these types can change incompatibly in every
//! release. Programs that use only the rest of the crate are not affected.
//!
//! [`lateral`] carries time-critical groups, [`rmp`] ordered groups and [`rdcm`] bulk groups.
//! [`Engine`] is the contract of a custom engine; see [`Builder::guest`](crate::Builder::guest).

pub use carom_proto::node::NodeCounters;
pub use carom_proto::{Engine, lateral, rdcm, rmp};

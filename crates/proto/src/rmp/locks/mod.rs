//! Mutually exclusive locks of a group (3.3, 4.3): the table that is part of the view, and the
//! requests of this node.

mod client;
mod table;

pub(crate) use self::client::{MAX_OWN, OwnLocks};
pub use self::table::{Handler, LockChange, LockError, LockName, LockNews, Locks};

//! The membership service in the world: control processes on hosts, the store that they share, and
//! the assignment of partitions to them.
//!
//! The store is not a machine. It has a place in the network, from which a process can be
//! partitioned, and a delay. It executes each commit at once, by the rules of the embedded store
//! and of etcd.

mod process;
mod resident;
mod services;
mod store;

pub use self::process::{News, Process, ProcessEvent};
pub use self::resident::{Order, Resident, Told};
pub use self::services::{Services, ServicesConfig};
pub use self::store::Store;

//! The membership service in the world: control processes on hosts, the store that they share, and
//! who of them owns which partition.
//!
//! The store is no machine. It has a place in the network, so that a process can be cut off from
//! it, and takes its time; what it decides it decides at once, by the rules of the embedded store
//! and of etcd.

mod process;
mod resident;
mod services;
mod store;

pub use self::process::{News, Process, ProcessEvent};
pub use self::resident::{Order, Resident, Told};
pub use self::services::{Services, ServicesConfig};
pub use self::store::Store;

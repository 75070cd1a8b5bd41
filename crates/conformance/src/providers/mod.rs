//! A simulated registry: registry processes on hosts, the store that they share, and the assignment
//! of partitions to the processes.
//!
//! The store is not a machine. It has a place in the network, from which a process can be
//! partitioned, and a delay. It executes commits at once, by the rules of the embedded store and of
//! etcd.

mod fault_plan;
mod process;
mod resident;
pub(crate) mod service;
mod services;
mod store;

pub(crate) use self::fault_plan::FaultPlan;
pub use self::process::{Process, ProcessEvent, StoreReport};
pub use self::resident::{Resident, ResidentCommand, ResidentEvent};
pub use self::service::{Service, Watch};
pub use self::services::{Services, ServicesConfig};
pub use self::store::Store;

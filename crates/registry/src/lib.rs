//! Carom's registry as a process.
//!
//! The decisions are made by the sans-IO code in [`carom_proto::membership::service`]. This crate
//! adds the connections, the store, the clock, the status and the metrics. It also runs failure
//! detectors and observers. `carom registry` runs the registry, and so can any other program:
//!
//! ```no_run
//! use carom_registry::{Registry, Options};
//!
//! let registry = Registry::start(Options::new("membership"))?;
//! println!("nodes join with --registry {}", registry.address());
//! registry.wait()?;
//! # Ok::<(), carom_registry::RegistryError>(())
//! ```

mod descriptors;
mod detector;
mod driver;
mod embedded;
mod error;
#[cfg(feature = "etcd")]
mod etcd;
mod http;
mod links;
mod metrics;
mod observer;
mod options;
mod panic_guard;
mod process;
mod registry;
mod status;
mod store;
mod store_identity;
mod tree_command;
mod writer;

pub use carom_proto::rdcm::manager::LinkState;
pub use carom_proto::rdcm::manager::service::LinkReportError;
pub use detector::{Detector, DetectorOptions, DetectorStatus, ProcessStatus};
pub use error::{RegistryError, StoreError};
pub use observer::{Observation, ObservedChange, ObservedNode, Observer, ObserverOptions};
pub use options::{DEFAULT_HTTP_PORT, DEFAULT_PORT, EtcdOptions, Options, StoreOptions};
pub use registry::Registry;
pub use status::{
    GroupStatus, KnownDetector, MemberStatus, MulticastGroup, MulticastStatus, NodeStatus,
    PartitionStatus, Status, StoreStatus, TreeInstallation,
};
pub use tree_command::TreeCommand;

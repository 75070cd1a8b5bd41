//! Carom's membership service as a process.
//!
//! The decisions are made by the sans-IO code in [`carom_proto::membership::service`]. This crate
//! adds the TCP connections, the store, the clock, the status and the metrics. `carom control` runs
//! the service, and a test or another program can run it as well:
//!
//! ```no_run
//! use carom_control::{Control, Options};
//!
//! let control = Control::start(Options::new("membership"))?;
//! println!("nodes give --control {}", control.address());
//! control.wait()?;
//! # Ok::<(), carom_control::ControlError>(())
//! ```

mod control;
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
mod status;
mod store;
mod store_identity;
mod writer;

pub use control::Control;
pub use detector::{Detector, DetectorOptions, DetectorStatus, ProcessStatus};
pub use error::{ControlError, StoreError};
pub use observer::{Observation, ObservedChange, ObservedNode, Observer, ObserverOptions};
pub use options::{DEFAULT_HTTP_PORT, DEFAULT_PORT, EtcdOptions, Options, StoreOptions};
pub use status::{
    GroupStatus, KnownDetector, MemberStatus, MulticastGroup, MulticastStatus, NodeStatus,
    PartitionStatus, Status, StoreStatus,
};

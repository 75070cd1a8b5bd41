//! Low-latency reliable multicast: receivers repair each other's losses in milliseconds.
//!
//! A [`Node`] is one running instance with its own sockets. A [`Group`] is a name under which nodes
//! publish messages to each other. Nodes find each other without settings on one host, by multicast
//! on one local network, and through [seeds](Builder::seeds) elsewhere. A member that multicast
//! does not reach receives unicast copies. A message that could not be repaired is reported as
//! [`Event::Lost`]; nothing is lost silently.
//!
//! One thread per node does all the work, or one per [`Driver`] that several nodes share. Calls
//! exist in a blocking and an async form; no particular async runtime is needed.
//!
//! Dropping a [`Group`] leaves it, and dropping a [`Node`] closes it.
//!
//! The feature `sim` adds the module `sim`, which runs programs on this API in a simulated world,
//! to test them under faults. The feature `topology` adds the module `topology`, which reads the
//! network of bulk groups from a file.
//!
//! ```
//! use carom::{Event, Node, Profile};
//! use std::time::Duration;
//!
//! // Usually in two processes, and without these settings: they keep the example to this host.
//! let builder = || Node::builder().interface("127.0.0.1").multicast_port(7411);
//! let (alice, bob) = (builder().start()?, builder().start()?);
//! let prices = alice.join("prices.eu", Profile::time_critical().rate_of_fire(8, 5))?;
//! let quotes = bob.join("prices.eu", Profile::time_critical().rate_of_fire(8, 5))?;
//!
//! while let Some(event) = prices.recv_timeout(Duration::from_secs(10))? {
//!     match event {
//!         Event::View(change) if change.node == bob.id() => break,
//!         other => println!("{other:?}"),
//!     }
//! }
//! prices.publish("EURUSD 1.0841")?;
//! while let Some(event) = quotes.recv_timeout(Duration::from_secs(10))? {
//!     match event {
//!         Event::Message(message) => {
//!             assert_eq!(&message.payload[..], b"EURUSD 1.0841");
//!             break;
//!         }
//!         Event::Lost(gap) => println!("{} messages lost: {}", gap.count(), gap.cause),
//!         other => println!("{other:?}"),
//!     }
//! }
//! prices.confirm(Duration::from_secs(10))?; // Everybody has it.
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod api;
#[cfg(doctest)]
mod documentation;
mod net;
mod runtime;
mod shared;
#[cfg(feature = "sim")]
pub mod sim;
#[cfg(feature = "topology")]
pub mod topology;

pub use api::builder::Builder;
pub use api::group::Group;
pub use api::lock::Lock;
pub use api::node::Node;
pub use api::publish::{Deadline, Published};
pub use api::shared_state::{Shared, SharedState};
pub use bytes::Bytes;
pub use carom_proto::lateral;
pub use carom_proto::loss::Loss;
pub use carom_proto::node::NodeCounters;
pub use carom_proto::rdcm;
pub use carom_proto::rmp::{self, Qos, Quorum, Removal, RingEvent, RingNews};
pub use carom_proto::{
    Confirmed, Engine, Event, GroupId, GroupSettings, How, Incarnation, JoinError, Limiting,
    LossCause, Lost, Message, NodeId, Origin, RateOfFire, SendOptions, SeqNo, Slow, Time,
    ViewChange, ViewChangeKind,
};
pub use net::interfaces::Interface;
#[cfg(fuzzing)]
#[doc(hidden)]
pub use net::paths::fuzz_path_packet;
pub use runtime::driver::Driver;
pub use shared::addressing::{MulticastPool, PathChoice, PoolParseError};
pub use shared::commands::Answered;
pub use shared::error::{
    ConfirmError, DeliveryError, JoinGroupError, LockError, LookError, PublishError, RequestError,
    StartError, Timeout, TryPublishError,
};
pub use shared::notices::Notice;
pub use shared::profile::Profile;
pub use shared::status::{
    Buffers, GroupStatus, MemberPath, MemberStatus, RingStatus, Stats, Status,
};

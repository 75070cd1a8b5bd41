//! Low-latency reliable multicast: receivers repair each other's losses in milliseconds.
//!
//! A [`Node`] is one running instance with its own sockets. A [`Group`] is a name under which nodes
//! publish messages to each other. Nodes find each other without settings on one host, by multicast
//! on one local network, and through [seeds](Builder::seeds) elsewhere. A member that multicast
//! does not reach receives unicast copies.
//!
//! ```
//! use carom::{Event, Node, Profile};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Usually in two processes, and without these settings: they keep the example to this host.
//! let builder = || Node::builder().interface("127.0.0.1").multicast_port(7411);
//! let (alice, bob) = (builder().start()?, builder().start()?);
//! let prices = alice.join("prices.eu", Profile::time_critical()).await?;
//! let quotes = bob.join("prices.eu", Profile::time_critical()).await?;
//!
//! prices.wait_for_members(1).await?;
//! prices.publish("EURUSD 1.0841").await?.delivered().await?;
//! while let Some(event) = quotes.recv().await {
//!     match event {
//!         Event::Message(message) => {
//!             assert_eq!(&message.payload[..], b"EURUSD 1.0841");
//!             break;
//!         }
//!         Event::Lost(gap) => println!("{} messages lost: {}", gap.count(), gap.cause),
//!         other => println!("{other:?}"),
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Which profile do I need?
//!
//! The [`Profile`] of a group selects the protocol that carries it. All members must use the same
//! profile.
//!
//! | messages | profile | guarantee |
//! |---|---|---|
//! | prices, sensor values | [`Profile::time_critical`] | lowest latency; losses are reported |
//! | commands, locks, requests | [`Profile::ordered`] | one order at all members |
//! | files, bulk data | [`Profile::bulk`] | the order of the one sender |
//!
//! No profile loses a message silently, except an [unreliable](Qos::Unreliable) one in an ordered
//! group.
//!
//! # Calls that wait
//!
//! These rules hold for all types:
//!
//! * A call that can wait is an `async fn`. It runs on any async runtime, because a thread of Carom
//!   does the work: one per node, or one per [`Driver`] that several nodes share.
//! * A call whose name begins with `try_`, or that returns no future, never waits for other nodes.
//! * A call whose name ends in `_timeout` waits for at most the given time, by the node's clock.
//! * The module [`blocking`] has the same types for threads: their calls block.
//!
//! Dropping the future of a join, a publish or a lock before it completes withdraws the call.
//! Requests, replies and leaves are executed once their future has been polled.
//!
//! # Handles
//!
//! [`Group`], [`Sender`], [`Receiver`], [`Lock`] and [`Published`] own what they need, so they can
//! be stored and moved to other tasks. Dropping the last handle of a group leaves the group.
//! Dropping a [`Node`] closes it.
//!
//! # Errors
//!
//! `Display` gives the cause of an error in one line, and `fix()`, which most error types have,
//! suggests a remedy in one line. Damaged or foreign datagrams are not errors: they are dropped and
//! counted in [`Stats`].
//!
//! # Examples
//!
//! Each runs with `cargo run --example NAME`.
//!
//! | example | shows |
//! |---|---|
//! | [publish_subscribe](examples::publish_subscribe) | two nodes in one group |
//! | [tokio_tasks](examples::tokio_tasks) | handles in tasks of Tokio |
//! | [several_groups](examples::several_groups) | one task with several groups |
//! | [lock](examples::lock) | a lock, and a resource that checks its fence |
//! | [request_reply](examples::request_reply) | a server with a standby |
//! | [replicated_map](examples::replicated_map) | an ordered group with a [`SharedState`] |
//! | [replicated_counters](examples::replicated_counters) | state that converges |
//! | `file_transfer` | a file to many nodes, with the crate `carom-files` |
//! | [simulator_test](examples::simulator_test) | the test of a program in the simulator |
//!
//! # Features
//!
//! `sim` adds the module `sim`, which runs programs that use this API in a simulated world, to test
//! them under faults. `topology` adds the module `topology`, which reads the network of bulk groups
//! from a file.

mod api;
#[cfg(doctest)]
mod documentation;
#[cfg(doc)]
pub mod examples;
mod net;
mod runtime;
mod shared;
#[cfg(feature = "sim")]
pub mod sim;
#[cfg(feature = "topology")]
pub mod topology;
pub mod unstable;

pub use api::blocking;
pub use api::builder::Builder;
pub use api::group::Group;
pub use api::lock::Lock;
pub use api::news::{Locks, Requests};
pub use api::node::Node;
pub use api::publish::{Deadline, Published};
pub use api::shared_state::{SharedState, StateEvent};
pub use api::split::{Receiver, Sender};
pub use bytes::Bytes;
pub use carom_proto::loss::Loss;
pub use carom_proto::ring::{
    Epoch, Handler, LockChange, LockName, LockNews, Member, Place, Process, Qos, Quorum, Removal,
    ReplyError, Request, RequestError as RequestRefused, RequestId, RequestOptions, RingEvent,
    RingNews, RingStatus, RingView, Timestamp, ViewEvent,
};
pub use carom_proto::{
    Confirmed, Event, GroupId, GroupSettings, How, Incarnation, JoinError, Limiting, LossCause,
    Lost, Message, NodeId, Origin, RateOfFire, SendOptions, SeqNo, Slow, Time, ViewChange,
    ViewChangeKind,
};
pub use net::interfaces::Interface;
#[cfg(fuzzing)]
#[doc(hidden)]
pub use net::paths::fuzz_path_packet;
pub use runtime::driver::Driver;
pub use shared::addressing::{MulticastPool, PathChoice, PoolParseError};
pub use shared::commands::Reply;
pub use shared::error::{
    ConfirmError, DeliveryError, GroupClosed, JoinGroupError, LockError, PublishError, QueryError,
    RequestError, StartError, Timeout,
};
pub use shared::notices::Notice;
pub use shared::profile::Profile;
pub use shared::status::{
    Buffers, GroupStatus, MemberPath, MemberStatus, NetCounters, Stats, Status,
};

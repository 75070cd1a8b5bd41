//! Runs programs that use the public API on a simulated network, in virtual time.
//!
//! Use this module to test a program that uses [`Node`] and [`Group`] under losses, crashes and
//! partitions, without changing it. A failure can be reproduced from its seed.
//!
//! A [`World`] has hosts, a network between them, and tasks: futures that run on one thread and
//! wait only for nodes and for [`Node::sleep`]. Virtual time passes only while all tasks wait, so
//! computation takes no time. The same seed and the same program give the same
//! [history](World::history), as long as the program has no other source of time, randomness or
//! order: no `Instant`, no thread, no iteration over a `HashMap`.
//!
//! [`Builder::start_on`] starts a node on a host. All other code is the same as on sockets.
//! Settings that do not apply to a simulated network are ignored: interface, port, multicast port,
//! pool, path and driver. Every member receives the multicast of its groups.
//!
//! All tasks share one thread, so a call that blocks it would never return. A call to a method in
//! [`blocking`](crate::blocking) panics if it would have to block. Dropping a node or a group never
//! blocks.
//!
//! [`Node`]: crate::Node
//! [`Node::sleep`]: crate::Node::sleep
//! [`Group`]: crate::Group
//! [`Builder::start_on`]: crate::Builder::start_on
//!
//! ```
//! use carom::sim::{Topology, World, WorldConfig};
//! use carom::{Event, Loss, Node, Profile};
//! use std::time::Duration;
//!
//! let topology = Topology::lan(2, Default::default());
//! let config = WorldConfig { loss: Loss::Uniform(0.2), ..WorldConfig::new(topology, 7) };
//! let mut world = World::new(config);
//! let (here, there) = (world.host(0), world.host(1));
//! let alice = Node::builder().start_on(&here)?;
//! let bob = Node::builder().start_on(&there)?;
//!
//! world.spawn(&here, async move {
//!     let prices = alice.join("prices", Profile::time_critical()).await.expect("joined");
//!     prices.wait_for_members(1).await.expect("open");
//!     prices.publish("EURUSD 1.0841").await.expect("published");
//!     prices.confirm(Duration::from_secs(10)).await.expect("Bob has it");
//! });
//! let heard = async {
//!     let prices = bob.join("prices", Profile::time_critical()).await.expect("joined");
//!     loop {
//!         match prices.recv().await.expect("the group is open") {
//!             Event::Message(message) => break message.payload,
//!             _ => {}
//!         }
//!     }
//! };
//! let heard = world.block_on(Duration::from_secs(60), heard).expect("within a minute");
//! assert_eq!(&heard[..], b"EURUSD 1.0841");
//! # Ok::<(), carom::StartError>(())
//! ```

mod executor;
mod host;
mod machine;
mod network;
mod oracle;
mod report;
mod switchboard;
mod troubles;
mod world;

pub use carom_sim::{
    Counters, Disturbance, Ethernet, Fault, HostIx, Jitter, Link, Lossy, PerClass, Place, Topology,
    WorldConfig,
};
pub use host::Host;
pub use oracle::Membership;
pub use troubles::{Trouble, Troubles};
pub use world::World;

pub(crate) use host::Reservation;
pub(crate) use machine::SimMachine;
pub(crate) use network::SimNetwork;
pub(crate) use oracle::OracleProvider;

//! The lateral engine: Ricochet and Slingshot in one protocol.
//!
//! Data packets are sent by multicast. Receivers send each other XORs of the packets that they
//! received. The time to repair a lost packet therefore depends on the rate of a node's *whole*
//! traffic, not only on the rate of the same sender in the same group.
//!
//! # Papers and code
//!
//! | paper | here |
//! |---|---|
//! | Slingshot 3.1, algorithm 1, lines 9-27, 34-36 | `receiver`, `repair/decoder` |
//! | Slingshot 3.1, algorithm 1, lines 37-40 | `recovery` |
//! | Slingshot 3.1, data buffer | `streams/data_buffer` |
//! | Slingshot 3.2, pending repairs | `repair/pending_repairs` with [`Solver::Peeling`] |
//! | Slingshot 3.3, partial views | `groups/partial_view`, [`Config::partial_view`] |
//! | Slingshot 3.4, analysis | [`model`] |
//! | Ricochet 3, packet structure (figure 3) | [`packet`], [`packet::symbol`] |
//! | Ricochet 3.1.1, regions | `repair/regions` |
//! | Ricochet 3.1.2, algorithm 1 (bins and targets of each region) | `repair/chain` |
//! | Ricochet 3.2.1, 3.2.4, repair bins, pre-computed targets | `repair/bins` |
//! | Ricochet 3.2.2, multi-group views | `repair/regions`, `groups` |
//! | Ricochet 3.2.5, buffering and loss control | [`crate::inbox`] |
//! | Ricochet slides, staggering | the lanes of `repair/bins/batches` |
//!
//! # Parts
//!
//! [`Lateral`] delegates to its parts. Each of them owns its state, and all share a `Context`,
//! which contains the node's identity, settings and groups, and the engine's outputs.
//!
//! # Differences from the papers
//!
//! * A node's own packets enter its bins, because the sender is the most reliable source of its
//!   packets ([`Config::own_packets`]).
//! * Partly filled batches are flushed, and heartbeats follow the last packet of a stream. The
//!   papers protect a packet only if enough others follow ([`Config::flush_after`],
//!   [`Config::heartbeat`]).
//! * Pending repairs are solved together as equations ([`Solver::Elimination`]).
//! * A batch waits rather than draw a node that another open batch of the same region holds, unless
//!   it owes too many targets: "exactly one repair packet that includes d" (Ricochet 3); see
//!   `repair/bins`.
//! * A receiver queries each sender for the first position that it is owed (`Open`). A loss right
//!   after a join is therefore detected, and no packet from before the join is requested.
//! * A sender is held back by members that are a whole window behind ([`Config::window`]).
//! * A message may be larger than a packet. It is split into fragments, each a packet with its own
//!   sequence number, and reassembled by its receivers; see `sender/fragmentation` and
//!   `delivery/reassembly`.
//!
//! [`Config::as_in_the_papers`] disables the differences that affect measurements.

mod config;
mod context;
mod counters;
mod delivery;
mod engine;
mod groups;
mod index;
mod left_groups;
pub mod model;
pub mod packet;
mod prefetch;
mod receiver;
mod recovery;
mod repair;
mod sender;
mod streams;

pub use config::{AskFirst, Config, ConfigError, NakConfig, RepairScope, Solver, StreamStart};
pub use counters::Counters;
pub use engine::Lateral;

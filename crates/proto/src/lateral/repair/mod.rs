//! Construction and decoding of repairs.
//!
//! - [`bins`] collect packets into repairs for the nodes that [`regions`] and [`chain`] determine
//!   (Ricochet, algorithm 1).
//! - [`decoder`] solves the repairs from other nodes, together with the [`pending_repairs`].

mod bins;
mod chain;
mod decoder;
mod pending_repairs;
mod regions;

pub(super) use bins::{Bins, Repair};
pub(super) use decoder::Decoder;

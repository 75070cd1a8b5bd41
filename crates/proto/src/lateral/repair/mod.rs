//! Construction and decoding of repairs.

mod bins;
mod chain;
mod decoder;
mod pending_repairs;
mod regions;

pub(super) use bins::{Bins, Repair};
pub(super) use decoder::Decoder;

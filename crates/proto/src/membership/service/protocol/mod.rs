//! The protocol between nodes, detectors, observers and registry processes.

pub(crate) mod error;
pub(crate) mod fields;
pub mod frame;
pub(crate) mod limits;
pub(crate) mod reader;

//! A deterministic world for protocol engines: virtual time, seeded delays, losses and faults.

mod machine;

pub use machine::{Command, Machine};

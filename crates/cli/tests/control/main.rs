//! The membership service as its operators see it: real processes on loopback.

mod detectors;
mod disk;
mod faults;
mod members;
mod multicast;
#[path = "../lab/ports.rs"]
mod ports;
#[path = "../lab/process.rs"]
mod process;
#[path = "../lab/raw.rs"]
mod raw;
mod service;
#[path = "../lab/skipping.rs"]
mod skipping;
mod usage;
mod versions;

use std::time::Duration;

/// How long anything may take before a test fails instead of waiting for ever.
const PATIENCE: Duration = Duration::from_secs(60);

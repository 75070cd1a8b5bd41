//! Tests the registry from the operator's view: real processes on loopback.

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
#[path = "../lab/small_disk.rs"]
mod small_disk;
mod usage;
mod versions;

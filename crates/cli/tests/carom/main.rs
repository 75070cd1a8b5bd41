//! Tests from the user's view: real processes on loopback, where each test has its own ports.

mod benchmarks;
#[path = "../lab/lan.rs"]
mod lan;
mod looks;
mod messages;
#[path = "../lab/ports.rs"]
mod ports;
#[path = "../lab/process.rs"]
mod process;
mod usage;

//! Tests of the binary from the user's view: real processes on loopback. Each test has ports of its
//! own, so that all of them can run at once.

#[path = "../lab/lan.rs"]
mod lan;
mod looks;
mod messages;
#[path = "../lab/ports.rs"]
mod ports;
#[path = "../lab/process.rs"]
mod process;
mod usage;

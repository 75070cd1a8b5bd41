//! Tests labs in the namespaces of this machine.
//!
//! They need root, `ip` and `nft`, and `tcpdump` for captures. Without them, each test passes and
//! reports on standard error that it did not run.
#![cfg(target_os = "linux")]

mod carom_nodes;
mod cuts;
mod hosts;
mod losses;
#[path = "../../../cli/tests/lab/permitted.rs"]
mod permitted;
mod probe;
#[path = "../../../cli/tests/lab/skipping.rs"]
mod skipping;

use carom_netns::{Error, Lab, Layout};
use permitted::permitted;

/// Builds a lab. Returns `None` after a report if this machine does not permit it.
fn lab(racks: usize, hosts_per_rack: usize) -> Option<Lab> {
    permitted(Lab::build(&Layout { racks, hosts_per_rack, ..Layout::default() }))
}

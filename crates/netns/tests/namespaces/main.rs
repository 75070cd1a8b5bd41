//! Tests labs in the namespaces of this machine.
//!
//! They need root, `ip` and `nft`, and `tcpdump` for captures. Without them, each test passes and
//! reports on standard error that it did not run.
#![cfg(target_os = "linux")]

mod carom_nodes;
mod cuts;
mod hosts;
mod losses;
mod probe;
#[path = "../../../cli/tests/lab/skipping.rs"]
mod skipping;

use carom_netns::{Error, Lab, Layout};

/// Builds a lab. Returns `None` after a report if this machine does not permit it.
fn lab(racks: usize, hosts_per_rack: usize) -> Option<Lab> {
    permitted(Lab::build(&Layout { racks, hosts_per_rack, ..Layout::default() }))
}

/// Returns the value. Returns `None` after a report if this machine lacks a privilege or a program.
fn permitted<T>(result: Result<T, Error>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) if ["run as root", "apt-get"].iter().any(|it| error.fix().starts_with(it)) => {
            skipping::lacking(error.cause());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

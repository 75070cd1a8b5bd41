//! Networks of Linux network namespaces for tests and experiments.
//!
//! A [`Lab`] has hosts in racks: a network namespace per host, a bridge per rack with IGMP
//! snooping, and a core bridge between the racks. Hosts lose datagrams ([`Loss`]), have limited
//! rates, are cut off ([`Cut`]) and heal. Lost datagrams are recorded whole ([`DropLog`]).
//!
//! Programs run on a host in a process of their own ([`Host::command`]), or in a thread of this
//! process whose sockets belong to the host ([`Host::enter`]).
//!
//! ```no_run
//! use carom_netns::{Lab, Layout, Loss};
//!
//! # fn main() -> Result<(), carom_netns::Error> {
//! let lab = Lab::build(&Layout { racks: 2, hosts_per_rack: 4, ..Layout::default() })?;
//! let host = lab.host(1);
//! host.set_loss(&Loss::Independent { probability: 0.01 })?;
//! let drops = host.log_drops("h1.pcap".as_ref())?;
//! let socket = host.enter(|| std::net::UdpSocket::bind((host.address(), 9000)))?;
//! let mut listener = host.command("nc", &["-lu", "9001"]);
//! # drop((socket, listener));
//! let dropped = drops.finish()?;
//! # drop(dropped);
//! # Ok(())
//! # }
//! ```
//!
//! A lab needs the programs `ip` and, for losses and one-way cuts, `nft`. It needs root, or a
//! kernel that permits user namespaces: then the program calls [`isolate`] first. Dropping a lab
//! removes it. Inside [`isolate`] the kernel removes it, even after SIGKILL.
//!
//! The crate is empty on other systems than Linux.
#![cfg(target_os = "linux")]

mod capture;
mod cut;
mod drop_log;
mod error;
mod filter;
mod host;
mod isolation;
mod lab;
mod layout;
mod link_drops;
mod loss;
mod namespace;
mod outage;
mod outages;
mod owner;
mod process;
mod rack;
mod stale;
#[cfg(test)]
mod test_support;
mod tool;

pub use capture::Capture;
pub use cut::Cut;
pub use drop_log::{DropLog, Dropped};
pub use error::Error;
pub use host::Host;
pub use isolation::{Isolation, isolate};
pub use lab::{Lab, Plan};
pub use layout::Layout;
pub use loss::Loss;
pub use namespace::Namespace;
pub use outage::Outage;
pub use owner::Owner;
pub use process::{Process, exit_code};
pub use rack::Rack;
pub use stale::remove_stale;

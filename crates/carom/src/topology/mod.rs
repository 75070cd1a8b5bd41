//! Reads the network of bulk groups from a file, for
//! [`rdcm::Config::network`](crate::unstable::rdcm::Config::network).
//!
//! The format is TOML; `docs/bulk.md` describes it.
//!
//! ```
//! use carom::{Node, topology};
//! use carom::unstable::rdcm;
//!
//! let network = topology::parse(
//!     r#"
//!     [racks]
//!     left = ["127.0.0.1:7461", "127.0.0.1:7462"]
//!     right = ["127.0.0.1:7463"]
//!     "#,
//! )?;
//! let bulk = rdcm::Config { network, ..rdcm::Config::default() };
//! let builder = Node::builder().interface("127.0.0.1").bulk(bulk);
//! # let _ = builder;
//! # Ok::<(), topology::TopologyFileError>(())
//! ```

mod fault;
mod file;
mod placement;

use std::fs::File as Reading;
use std::io::Read as _;
use std::path::Path;

use carom_proto::rdcm::topology::Topology;
use carom_proto::rdcm::{Hosts, MAX_PORTS, Network};
use serde::Deserialize as _;

pub use self::fault::{Fault, TopologyFileError};
use self::file::{File, Lines};
use self::placement::Placement;

/// Reads a topology file, resolves its host names, and returns the network that it describes.
///
/// # Errors
/// Returns the first error, with its line, if the file cannot be read or is invalid.
pub fn read(path: &Path) -> Result<Network, TopologyFileError> {
    let mut text = String::new();
    let bytes = Reading::open(path)
        .and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text))
        .map_err(|error| TopologyFileError::whole(Fault::Read(error)))?;
    if bytes as u64 > MAX_FILE_BYTES {
        return Err(TopologyFileError::whole(Fault::TooLong));
    }
    parse(&text)
}

/// Parses the text of a topology file; see [`read`].
///
/// # Errors
/// Returns the first error, with its line, if the text is invalid.
pub fn parse(text: &str) -> Result<Network, TopologyFileError> {
    let lines = Lines(text);
    let deserializer = toml::Deserializer::parse(text).map_err(|error| lines.refused(&error))?;
    let file = File::deserialize(deserializer).map_err(|error| lines.refused(&error))?;
    let (topology, placement) = file.topology(&lines)?;
    placement.check_connected(&topology)?;
    let hosts = placement.hosts()?;
    with_visitors(topology, hosts, &placement)
}

fn with_visitors(
    topology: Topology,
    hosts: Hosts,
    placement: &Placement,
) -> Result<Network, TopologyFileError> {
    placement.check_links(&topology, MAX_PORTS - 1)?;
    let topology = topology.with_visitors().map_err(|error| placement.wrong_shape(error))?;
    Ok(Network::Known { topology: Box::new(topology), hosts })
}

const MAX_FILE_BYTES: u64 = 16 << 20;

#[cfg(test)]
mod tests;

//! The network of a transfer, where a file describes it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use carom::rdcm::{Hosts, Network};
use carom::{Node, NodeId, rdcm, topology};
use carom_proto::Endpoint;

use crate::error::CliError;

/// The file that `--topology` names.
#[derive(clap::Args)]
pub(crate) struct TopologyArgs {
    /// File in TOML that says what the network is like and which node stands where
    #[arg(long, value_name = "FILE")]
    topology: Option<PathBuf>,
}

/// What a file says of the network.
pub(crate) struct Described {
    file: String,
    hosts: Hosts,
}

impl TopologyArgs {
    /// Reads the file, if one is named, into the settings of the engine.
    ///
    /// # Errors
    /// The file cannot be used.
    pub(crate) fn read(&self, bulk: &mut rdcm::Config) -> Result<Option<Described>, CliError> {
        let Some(path) = &self.topology else { return Ok(None) };
        bulk.network = read(path)?;
        Ok(match &bulk.network {
            Network::Unknown => None,
            Network::Known { hosts, .. } => {
                Some(Described { file: path.display().to_string(), hosts: hosts.clone() })
            }
        })
    }
}

/// Reads a file.
///
/// # Errors
/// What is wrong with it, with its line.
pub(crate) fn read(path: &Path) -> Result<Network, CliError> {
    topology::read(path).map_err(|error| {
        let file = path.display();
        let cause = match error.line {
            Some(line) => format!("{file}:{line}: {}", error.fault),
            None => format!("{file}: {}", error.fault),
        };
        CliError::new(cause, error.fix())
    })
}

impl Described {
    /// Says that this node is not named, if it is not.
    pub(crate) fn look_at_sender(&self, node: &Node) -> Option<String> {
        self.unnamed("this node", node.id(), node.endpoint())
    }

    /// Says that a member is not named, if it is not.
    pub(crate) fn look_at_member(&self, node: &Node, member: NodeId) -> Option<String> {
        let members = node.status().members;
        let status = members.iter().find(|status| status.node == member)?;
        self.unnamed("a receiver", member, status.endpoint)
    }

    fn unnamed(&self, who: &str, node: NodeId, endpoint: SocketAddr) -> Option<String> {
        let mut hosts = self.hosts.clone();
        hosts.meet(node, Endpoint(endpoint));
        let file = &self.file;
        let line = || format!("{who} at {endpoint} is not in {file}: it has a place of its own");
        hosts.of(node).is_none().then(line)
    }
}

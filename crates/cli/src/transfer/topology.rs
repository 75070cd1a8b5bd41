//! The description of a transfer's network, read from a file.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use carom::blocking::Node;
use carom::unstable::rdcm;
use carom::unstable::rdcm::{Hosts, Network};
use carom::{NodeId, topology};
use carom_proto::Endpoint;
use carom_terminal::CliError;

#[derive(clap::Args)]
pub(crate) struct TopologyArgs {
    /// TOML description of the network and of the location of each node; only a registry installs
    /// trees in it, see `carom registry --on-tree`
    #[arg(long, value_name = "FILE")]
    topology: Option<PathBuf>,
}

pub(crate) struct Described {
    file: String,
    hosts: Hosts,
}

impl TopologyArgs {
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
    pub(crate) fn look_at_sender(&self, node: &Node) -> Option<String> {
        self.unnamed("this node", node.id(), node.endpoint())
    }

    pub(crate) fn look_at_member(&self, node: &Node, member: NodeId) -> Option<String> {
        let members = node.status().members;
        let status = members.iter().find(|status| status.node == member)?;
        self.unnamed("a receiver", member, status.endpoint)
    }

    fn unnamed(&self, who: &str, node: NodeId, endpoint: SocketAddr) -> Option<String> {
        let mut hosts = self.hosts.clone();
        hosts.node_up(node, Endpoint(endpoint));
        let file = &self.file;
        let line = || format!("{who} at {endpoint} is not in {file}: it is placed separately");
        hosts.of(node).is_none().then(line)
    }
}

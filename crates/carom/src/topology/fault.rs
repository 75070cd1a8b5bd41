use std::io;

use carom_proto::rdcm::topology::{LinkSpeedError, TopologyError};

use crate::shared::error::plain;

/// The error returned for a topology file. `Display` gives the line and the cause.
#[derive(Debug, thiserror::Error)]
#[error("{}{fault}", place(*line))]
pub struct TopologyFileError {
    /// Line number, from 1, or `None` if the error does not concern a single line.
    pub line: Option<usize>,
    /// Cause of the error.
    pub fault: Fault,
}

/// The cause of an error in a topology file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The file does not exist, cannot be read, or is not UTF-8 text.
    #[error("cannot read the file: {}", plain(.0))]
    Read(io::Error),
    /// The file is longer than 16 MiB.
    #[error("the file is longer than 16 MiB")]
    TooLong,
    /// The text is not TOML, or does not have the expected structure.
    #[error("{message}")]
    Form {
        /// Message of the TOML parser, or the unknown key.
        message: String,
        /// Keys that are allowed here. Empty unless an unknown key was given.
        known: Vec<String>,
    },
    /// The file places no node.
    #[error("the file places no node in the network")]
    NoHosts,
    /// A generated network is combined with another one, or with the description of another one.
    #[error(
        "a generated network cannot be combined with another one, hosts-forward, speeds, \
         switches, racks or links"
    )]
    Mixed,
    /// The described network is impossible or too large.
    #[error(transparent)]
    Shape(#[from] TopologyError),
    /// Two switches, racks or hosts have the same name.
    #[error("name '{name}' is used twice, first on line {first}")]
    NameTwice {
        /// Name that is used twice.
        name: String,
        /// Line of the first use.
        first: usize,
    },
    /// A node is placed twice.
    #[error("node '{node}' is placed twice, first on line {first}")]
    NodeTwice {
        /// The node, as given.
        node: String,
        /// Line of the first placement.
        first: usize,
    },
    /// A link names a switch, rack or host that does not exist.
    #[error("unknown switch, rack or host '{name}'")]
    Unknown {
        /// Unknown name.
        name: String,
    },
    /// A link connects a switch, rack or host to itself.
    #[error("'{name}' has a link to itself")]
    Loop {
        /// Name of both ends of the link.
        name: String,
    },
    /// A link is not a list of two ends, optionally with its speed.
    #[error("the list of a link has {parts} entries: expected two ends, and optionally a speed")]
    LinkParts {
        /// Number of entries.
        parts: usize,
    },
    /// The speed of a link is invalid.
    #[error(transparent)]
    Speed(#[from] LinkSpeedError),
    /// The generated network has no such host.
    #[error("'{name}' is not a host of this network")]
    NoSuchHost {
        /// The name, as given.
        name: String,
        /// First and last host of the generated network.
        hosts: [String; 2],
    },
    /// A switch or host has more links than packets can address.
    #[error("'{name}' has {links} links: expected at most {most}")]
    Links {
        /// Name of the switch or host.
        name: String,
        /// Number of its links.
        links: usize,
        /// Maximum number of links.
        most: usize,
    },
    /// The network is not connected.
    #[error("there is no path from '{from}' to '{to}'")]
    NotConnected {
        /// Host at the start of the missing path.
        from: String,
        /// Switch or host that cannot be reached from `from`.
        to: String,
    },
    /// A node is given neither by its id nor by an address, or its name does not resolve.
    #[error("node '{node}' is invalid: {reason}")]
    Node {
        /// The node, as given.
        node: String,
        /// Reason why the node was refused.
        reason: String,
    },
}

impl TopologyFileError {
    pub(super) fn whole(fault: Fault) -> Self {
        Self { line: None, fault }
    }

    pub(super) fn at(line: usize, fault: Fault) -> Self {
        Self { line: Some(line), fault }
    }

    /// Returns a one-line suggestion for how to fix the error.
    pub fn fix(&self) -> String {
        let fix = match &self.fault {
            Fault::Read(_) => "check that the file exists and is readable",
            Fault::TooLong | Fault::Shape(_) => "describe a smaller or a different network",
            Fault::Form { known, .. } if !known.is_empty() => {
                return format!("use one of the allowed keys: {}", known.join(", "));
            }
            Fault::Form { .. } => "write the file in TOML, as shown in docs/bulk.md",
            Fault::NoHosts => "place each node under [racks] or [hosts]",
            Fault::Mixed => {
                "keep only [hosts] and one generated network, or remove the generated network"
            }
            Fault::NameTwice { .. } => "give each switch, rack and host a unique name",
            Fault::NodeTwice { .. } => {
                "remove one of them; for several nodes at one address, use ADDRESS:PORT"
            }
            Fault::Unknown { .. } => "add it to switches, [racks] or [hosts], or correct the name",
            Fault::Loop { .. } => "remove the link, or correct one of its ends",
            Fault::LinkParts { .. } => r#"write a link as ["A", "B"] or ["A", "B", "10 Gbit/s"]"#,
            Fault::Speed(_) => "use bit/s with a prefix: kbit/s, Mbit/s, Gbit/s or Tbit/s",
            Fault::NoSuchHost { hosts: [first, last], .. } => {
                return format!("use a host from '{first}' to '{last}'");
            }
            Fault::Links { .. } => "put switches or racks between them",
            Fault::NotConnected { .. } => {
                "add the missing link; hosts forward packets only with hosts-forward = true"
            }
            Fault::Node { .. } => {
                "use an IPv4 address or a host name, with or without :PORT, or the node's id of \
                 16 digits"
            }
        };
        fix.to_owned()
    }
}

fn place(line: Option<usize>) -> String {
    line.map_or_else(String::new, |line| format!("line {line}: "))
}

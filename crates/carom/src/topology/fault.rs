//! What can be wrong with a topology file, each with what helps.

use std::fmt;
use std::io;

use carom_proto::rdcm::topology::TopologyError;

use crate::error::plain;

/// Why a topology file cannot be used. `Display` gives line and cause, [`TopologyFileError::fix`]
/// the remedy.
#[derive(Debug)]
pub struct TopologyFileError {
    /// The line, from 1; `None` if it is about none of them.
    pub line: Option<usize>,
    /// What is wrong.
    pub fault: Fault,
}

/// What is wrong with a topology file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The file is not there, or is no text.
    #[error("it cannot be read: {}", plain(.0))]
    Read(io::Error),
    /// The file is too long.
    #[error("it is longer than 16 MiB")]
    TooLong,
    /// It is no TOML, or not of this form.
    #[error("{message}")]
    Form {
        /// What the reader says.
        message: String,
        /// The keys that are possible there, if another was given.
        known: Vec<String>,
    },
    /// No node is named.
    #[error("no node is placed in the network")]
    NoHosts,
    /// Both a generated network and one of its own.
    #[error("a generated network has switches, racks and links already")]
    Mixed,
    /// A generated network that is not possible.
    #[error(transparent)]
    Shape(#[from] TopologyError),
    /// Two things of the same name.
    #[error("'{name}' is named twice, first in line {first}")]
    NameTwice {
        /// The name.
        name: String,
        /// The line in which it is named first.
        first: usize,
    },
    /// One node at two hosts.
    #[error("'{node}' is placed twice, first in line {first}")]
    NodeTwice {
        /// The node as given.
        node: String,
        /// The line in which it is placed first.
        first: usize,
    },
    /// A link to what is not there.
    #[error("there is no switch, rack or host '{name}'")]
    Unknown {
        /// What the link names.
        name: String,
    },
    /// A link from something to itself.
    #[error("'{name}' is linked to itself")]
    Loop {
        /// The name.
        name: String,
    },
    /// No host of a generated network.
    #[error("'{name}' is no host of this network")]
    NoSuchHost {
        /// What is named.
        name: String,
        /// The first and the last host that there are.
        hosts: [String; 2],
    },
    /// More links than the packets can tell of.
    #[error("'{name}' has {links} links, and at most {most} are possible")]
    Links {
        /// Which host or switch.
        name: String,
        /// How many it has.
        links: usize,
        /// How many it can have.
        most: usize,
    },
    /// It is not one network.
    #[error("there is no way from '{from}' to '{to}'")]
    NotConnected {
        /// The first host.
        from: String,
        /// What is not reached from there.
        to: String,
    },
    /// What stands for a node is neither its id nor an address, or its name does not resolve.
    #[error("node '{node}': {reason}")]
    Node {
        /// As given.
        node: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl TopologyFileError {
    /// About no line.
    pub(super) fn whole(fault: Fault) -> Self {
        Self { line: None, fault }
    }

    pub(super) fn at(line: usize, fault: Fault) -> Self {
        Self { line: Some(line), fault }
    }

    /// What helps.
    pub fn fix(&self) -> String {
        let fix = match &self.fault {
            Fault::Read(_) => "see whether the file is there and may be read",
            Fault::TooLong | Fault::Shape(_) => "describe a smaller or another network",
            Fault::Form { known, .. } if !known.is_empty() => {
                return format!("known keys here: {}", known.join(", "));
            }
            Fault::Form { .. } => "write it in TOML, as docs/bulk.md shows",
            Fault::NoHosts => "say which node is where, under [racks] or [hosts]",
            Fault::Mixed => "leave out switches, links and [racks], or what generates the network",
            Fault::NameTwice { .. } => "give each switch, rack and host a name of its own",
            Fault::NodeTwice { .. } => {
                "leave one out; nodes of one address are told apart by ADDRESS:PORT"
            }
            Fault::Unknown { .. } => "name it under switches, [racks] or [hosts], or correct it",
            Fault::Loop { .. } => "leave the link out, or correct one of its ends",
            Fault::NoSuchHost { hosts: [first, last], .. } => {
                return format!("its hosts are '{first}' to '{last}'");
            }
            Fault::Links { .. } => "put switches or racks between them",
            Fault::NotConnected { .. } => {
                "add the link that is missing; packets pass hosts only with hosts-forward = true"
            }
            Fault::Node { .. } => {
                "give an IPv4 address or a host name, with or without :PORT, or the node's id of \
                 16 digits"
            }
        };
        fix.to_owned()
    }
}

impl fmt::Display for TopologyFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.fault),
            None => self.fault.fmt(f),
        }
    }
}

impl std::error::Error for TopologyFileError {}

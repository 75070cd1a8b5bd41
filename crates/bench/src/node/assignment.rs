use std::net::Ipv4Addr;
use std::path::PathBuf;

use super::error::NodeError;
use super::settings::{Profile, Settings};
use crate::message::{HEADER_BYTES, Magic};

/// The arguments of a node, the same for all systems.
#[derive(Clone, Debug, clap::Args)]
pub struct Assignment {
    /// Role of the node
    #[arg(long)]
    pub role: Role,
    /// Index of the node, from 0
    #[arg(long)]
    pub index: u32,
    /// Number of nodes
    #[arg(long)]
    pub nodes: u32,
    /// IPv4 address of the node
    #[arg(long)]
    pub address: Ipv4Addr,
    /// Number of groups
    #[arg(long)]
    pub groups: u32,
    /// Messages of each sender
    #[arg(long)]
    pub messages: u32,
    /// Messages per second of each sender; 0 means as fast as possible
    #[arg(long)]
    pub rate: f64,
    /// Bytes of a message, at least 32
    #[arg(long)]
    pub size: usize,
    /// Mebibytes that the sender also sends, as fast as possible, in a group of their own
    #[arg(long, default_value_t = 0)]
    pub background_mib: u32,
    /// Magic of the run, 16 hexadecimal digits
    #[arg(long)]
    pub magic: Magic,
    /// Directory for the files of the node
    #[arg(long)]
    pub dir: PathBuf,
    /// Settings of the system [default: those of the system]
    #[arg(long)]
    pub settings: Option<PathBuf>,
    /// Addresses of all nodes, in the order of their indices
    #[arg(long, value_delimiter = ',')]
    pub peers: Vec<Ipv4Addr>,
}

/// The role of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Role {
    /// Sends only. It is node 0.
    Sender,
    /// Receives only.
    Receiver,
    /// Sends and receives, like all other nodes.
    Member,
}

/// A system whose node is part of this crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum System {
    /// Carom, through its public API.
    Carom,
    /// Plain UDP multicast, with one send call for each message and no recovery.
    Raw,
}

impl Role {
    /// Returns `true` if the node sends.
    pub fn sends(self) -> bool {
        self != Self::Receiver
    }

    /// Returns `true` if the node receives.
    pub fn receives(self) -> bool {
        self != Self::Sender
    }
}

impl System {
    /// Returns `true` if a member delivers its own messages.
    pub(super) fn delivers_own(self, work: &Assignment) -> Result<bool, NodeError> {
        Ok(match self {
            Self::Carom => Settings::read(work.settings.as_deref())?.profile == Profile::Ordered,
            Self::Raw => true,
        })
    }
}

impl Assignment {
    /// Returns the number of senders whose messages this node must deliver.
    pub(super) fn senders(&self, delivers_own: bool) -> u32 {
        match self.role {
            Role::Sender => 0,
            Role::Receiver => 1,
            Role::Member => self.nodes - u32::from(!delivers_own),
        }
    }

    /// Returns the number of messages of the background transfer.
    pub(super) fn background_messages(&self) -> u32 {
        let bytes = u64::from(self.background_mib) << 20;
        u32::try_from(bytes / self.size as u64).unwrap_or(u32::MAX)
    }

    pub(super) fn check(&self) -> Result<(), NodeError> {
        let values = [
            ("--nodes", u64::from(self.nodes), 2),
            ("--groups", u64::from(self.groups), 1),
            ("--size", self.size as u64, HEADER_BYTES as u64),
        ];
        for (flag, value, least) in values {
            if value < least {
                return Err(NodeError::TooSmall { flag, value, least });
            }
        }
        Ok(())
    }
}

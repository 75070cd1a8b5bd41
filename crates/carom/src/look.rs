//! Looks at the rings of ordered groups, as a node that need not be in them.

use std::time::Duration;

use async_channel::Sender;
use carom_proto::rmp::{self, Epoch, LookOptions, RingSight};
use carom_proto::{GroupId, NodeId};

use crate::blocking::within;
use crate::command::NodeCommand;
use crate::node::Node;
use crate::status::RingStatus;

/// Why the rings of a group were not looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LookError {
    /// So many looks of this node are not over.
    #[error("{open} looks at groups are not over")]
    TooMany {
        /// How many.
        open: usize,
    },
    /// The node is closed.
    #[error("the node is closed")]
    Closed,
}

/// Where somebody waits for what there is to be seen.
pub(crate) type Looker = Sender<Result<Vec<RingStatus>, LookError>>;

impl LookError {
    /// The fix, in one line.
    pub fn fix(&self) -> String {
        match self {
            Self::TooMany { .. } => "wait for earlier looks to be over".into(),
            Self::Closed => "start a new node".into(),
        }
    }
}

impl From<rmp::LookError> for LookError {
    fn from(error: rmp::LookError) -> Self {
        match error {
            rmp::LookError::TooMany { open } => Self::TooMany { open },
        }
    }
}

impl From<RingSight> for RingStatus {
    fn from(sight: RingSight) -> Self {
        let RingSight { view, token, is_working } = sight;
        Self { view, token, is_working }
    }
}

impl Node {
    /// Looks at the ordered group called `group`, in which this node need not be, and is not
    /// afterwards: its rings, each as one of its members knows it. There are several while the
    /// network is in parts. None if nobody has answered within `timeout`; whoever is there answers
    /// in about a tenth of a second. At the members nothing changes. On any async runtime.
    ///
    /// A node that is in the group knows its own ring, and asks nobody.
    ///
    /// # Errors
    /// Too many looks of this node are not over, or it is closed.
    pub async fn look(&self, group: &str, timeout: Duration) -> Result<Vec<RingStatus>, LookError> {
        let name_check = GroupId::name_check(group);
        let options = LookOptions { name_check, patience: timeout, via: None };
        let group = GroupId::of_name(group);
        let looked = self.ask(|reply| NodeCommand::Look { group, options, reply });
        looked.recv().await.unwrap_or(Err(LookError::Closed))
    }

    /// Asks the members of a ring of the ordered group called `group` to continue without a quorum
    /// of its [electorate](crate::Profile::quorum_of), for an operator who knows that the voters in
    /// `lost` do not come back. This node need not be in the group.
    ///
    /// The ring is named by the epoch of its view, as [`Node::look`] shows it. Nothing happens
    /// while the ring works, if a voter is silent that is not named, or if one that is named
    /// answers. Whether it has happened, another look shows; at the members the next view says
    /// that it was forced. It is sent once: ask again if it was lost.
    ///
    /// # Danger
    /// If the voters that are named work elsewhere there are two rings from now on, each with its
    /// own order and its own locks.
    pub fn force_quorum(&self, group: &str, epoch: Epoch, lost: &[NodeId]) {
        let (group, lost) = (GroupId::of_name(group), lost.to_vec());
        self.tell(NodeCommand::ForceQuorum { group, epoch, lost });
    }

    /// As [`Node::look`], blocking the thread.
    ///
    /// # Errors
    /// As [`Node::look`].
    ///
    /// # Panics
    /// On a simulated node: see [`Node::look`].
    #[track_caller]
    pub fn look_blocking(
        &self,
        group: &str,
        timeout: Duration,
    ) -> Result<Vec<RingStatus>, LookError> {
        self.must_not_block("Node::look_blocking", "look");
        within(Duration::MAX, self.look(group, timeout)).expect("this time never ends")
    }
}

//! Queries of the rings of ordered groups, also by nodes that have not joined them.

use std::time::Duration;

use async_channel::Sender;
use carom_proto::rmp::{self, Epoch, LookOptions, RingSight};
use carom_proto::{GroupId, NodeId};

use crate::blocking::within;
use crate::command::NodeCommand;
use crate::node::Node;
use crate::status::RingStatus;

/// Error of a ring query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LookError {
    /// Too many queries of this node are in progress.
    #[error("too many ring queries: {open} are in progress")]
    TooMany {
        /// Number of queries in progress.
        open: usize,
    },
    /// The node is closed.
    #[error("the node is closed")]
    Closed,
}

/// Reply channel of a ring query.
pub(crate) type Looker = Sender<Result<Vec<RingStatus>, LookError>>;

impl LookError {
    /// Returns the fix, in one line.
    pub fn fix(&self) -> String {
        match self {
            Self::TooMany { .. } => "wait until earlier queries have finished".into(),
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
    /// Queries the rings of the ordered group called `group`, on any async runtime.
    ///
    /// Each ring is returned as one of its members knows it. There are several rings while the
    /// network is partitioned. The list is empty if no member has answered within `timeout`;
    /// members that are online answer in about 0.1 s. This node need not have joined the group, and
    /// does not join it. The query changes nothing at the members.
    ///
    /// A node that has joined the group returns its own ring without sending a query.
    ///
    /// # Errors
    /// Too many queries of this node are in progress, or the node is closed.
    pub async fn look(&self, group: &str, timeout: Duration) -> Result<Vec<RingStatus>, LookError> {
        let name_check = GroupId::name_check(group);
        let options = LookOptions { name_check, patience: timeout, via: None };
        let group = GroupId::of_name(group);
        let looked = self.ask(|reply| NodeCommand::Look { group, options, reply });
        looked.recv().await.unwrap_or(Err(LookError::Closed))
    }

    /// Requests that a ring of the ordered group called `group` continue without a quorum of its
    /// [electorate](crate::Profile::quorum_of).
    ///
    /// This is for an operator who knows that the voters in `lost` will not return. This node need
    /// not have joined the group.
    ///
    /// `epoch` identifies the ring by its view, as [`Node::look`] returns it. The request has no
    /// effect while the ring works, if a voter that is not in `lost` is silent, or if a voter in
    /// `lost` answers. [`Node::look`] shows the result; the next view at the members is marked as
    /// forced. The request is sent once: repeat it if it was lost.
    ///
    /// # Danger
    /// If the voters in `lost` are still working elsewhere, there are two rings from now on, each
    /// with its own order and its own locks.
    pub fn force_quorum(&self, group: &str, epoch: Epoch, lost: &[NodeId]) {
        let (group, lost) = (GroupId::of_name(group), lost.to_vec());
        self.tell(NodeCommand::ForceQuorum { group, epoch, lost });
    }

    /// Like [`Node::look`], but blocks the thread.
    ///
    /// # Errors
    /// See [`Node::look`].
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

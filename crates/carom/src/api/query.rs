//! Requests and queries to ordered groups that the node need not have joined.

use std::time::Duration;

use bytes::Bytes;
use carom_proto::ring::{Epoch, QueryOptions, RequestOptions, RingStatus};
use carom_proto::{GroupId, NodeId};

use super::node::Node;
use crate::shared::commands::{NodeCommand, Reply};
use crate::shared::error::{QueryError, RequestError};

impl Node {
    /// Sends a request to the ordered group `group`, which this node need not have joined.
    ///
    /// # Errors
    /// See [`Group::request`](crate::Group::request). If the group does not exist, the request
    /// remains unanswered.
    pub async fn request(
        &self,
        group: &str,
        payload: impl Into<Bytes>,
        options: impl Into<RequestOptions>,
    ) -> Result<Reply, RequestError> {
        let group = GroupId::of_name(group);
        let (shared, payload, options) = (None, payload.into(), options.into());
        let request = |reply| NodeCommand::Request { group, shared, payload, options, reply };
        self.handle().call(request).recv().await.unwrap_or(Err(RequestError::Closed))
    }

    /// Queries the rings of the ordered group `group`, which this node need not have joined.
    ///
    /// Returns each ring as one of its members knows it: several rings while the network is
    /// partitioned, and none if no member has answered within `timeout`. Members answer in about
    /// 0.1 s. If this node is a member, it returns its own ring without sending a query.
    ///
    /// # Errors
    /// Returns an error if too many queries of this node are in progress, or the node is closed.
    pub async fn query(
        &self,
        group: &str,
        timeout: Duration,
    ) -> Result<Vec<RingStatus>, QueryError> {
        let name_check = GroupId::name_check(group);
        let options = QueryOptions { name_check, patience: timeout, via: None };
        let group = GroupId::of_name(group);
        let answer = self.handle().call(|reply| NodeCommand::Query { group, options, reply });
        answer.recv().await.unwrap_or(Err(QueryError::Closed))
    }

    /// Requests a ring of the ordered group `group` to continue without a quorum of its
    /// [electorate](crate::Profile::quorum_of). This node need not have joined the group.
    ///
    /// `epoch` identifies the ring, as [`Node::query`] returns it. The request has no effect if the
    /// ring has another epoch by now or still has its quorum, a voter that is not in `lost` does
    /// not answer, or a voter in `lost` answers. The next view at the members is marked as forced.
    /// The request is sent once, without confirmation: repeat it if the ring does not change.
    ///
    /// # Danger
    /// If the voters in `lost` are still working elsewhere, there will be two rings, each with its
    /// own order and its own locks.
    pub fn force_quorum(&self, group: &str, epoch: Epoch, lost: &[NodeId]) {
        let (group, lost) = (GroupId::of_name(group), lost.to_vec());
        self.handle().driver.send(NodeCommand::ForceQuorum { group, epoch, lost });
    }
}

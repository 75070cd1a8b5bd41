//! Requests to ordered groups, and queries of their rings, by nodes that need not have joined them.

use std::time::Duration;

use bytes::Bytes;
use carom_proto::ring::{Epoch, QueryOptions, RequestOptions, RingStatus};
use carom_proto::{GroupId, NodeId};

use super::node::Node;
use crate::shared::commands::{NodeCommand, Reply};
use crate::shared::error::{QueryError, RequestError};

impl Node {
    /// Like [`Group::request`](crate::Group::request), but to the ordered group called `group`,
    /// which this node need not have joined.
    ///
    /// # Errors
    /// See [`Group::request`](crate::Group::request). If no such group exists, there is no answer.
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

    /// Queries the rings of the ordered group called `group`, which this node need not have joined.
    ///
    /// Each ring is returned as one of its members knows it. There are several while the network is
    /// partitioned, and none if no member has answered within `timeout`; members answer in about
    /// 0.1 s. A member returns its own ring without sending a query.
    ///
    /// # Errors
    /// Too many queries of this node are in progress, or the node is closed.
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

    /// Requests that a ring of the ordered group called `group` continue without a quorum of its
    /// [electorate](crate::Profile::quorum_of). This node need not have joined the group.
    ///
    /// `epoch` identifies the ring, as [`Node::query`] returns it. The request has no effect while
    /// the ring works, if a voter that is not in `lost` is silent, or if one in `lost` answers. The
    /// next view at the members is marked as forced. The request is sent once: repeat it if it was
    /// lost.
    ///
    /// # Danger
    /// If the voters in `lost` are still working elsewhere, there are two rings from now on, each
    /// with its own order and its own locks.
    pub fn force_quorum(&self, group: &str, epoch: Epoch, lost: &[NodeId]) {
        let (group, lost) = (GroupId::of_name(group), lost.to_vec());
        self.handle().driver.send(NodeCommand::ForceQuorum { group, epoch, lost });
    }
}

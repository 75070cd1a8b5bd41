//! The part of the contract that only engines of ordered groups have.

use alloc::vec::Vec;

use bytes::Bytes;

use crate::ring::{
    Epoch, JoinOptions, LockError, LockName, Process, QueryError, QueryId, QueryOptions,
    QueryResult, ReplyError, RequestError, RequestId, RequestOptions, RingView,
};
use crate::{Engine, GroupId, GroupSettings, JoinError, NodeId, Time};

/// An engine of ordered groups, with locks, requests, and the state of rings.
pub trait OrderedGroups: Engine {
    /// Returns `true` if this node is in the group or joining it, or has left but still answers.
    fn has(&self, group: GroupId) -> bool;

    /// Returns the next group that this node no longer has because it left or was removed.
    fn poll_ended(&mut self) -> Option<GroupId>;

    /// Returns this node's view of the ring of a group, or `None` if this node is not in a ring.
    fn view(&self, group: GroupId) -> Option<&RingView>;

    /// Returns the token holder of a group, or `None` if this node is not in a ring.
    fn token(&self, group: GroupId) -> Option<Process>;

    /// Returns `true` if this node's ring works: it is not being reformed and has its quorum.
    fn is_working(&self, group: GroupId) -> bool;

    /// Returns the maximum size of an [unreliable](crate::ring::Qos::Unreliable) message, in bytes.
    /// Such a message must fit in one packet.
    fn unreliable_limit(&self) -> usize;

    /// Joins a group like [`Engine::join`], with options that apply only to this node.
    ///
    /// # Errors
    /// Returns an error if the group is not ordered, its settings are out of bounds, or the node is
    /// already in it.
    fn join_with(
        &mut self,
        now: Time,
        group: GroupId,
        settings: GroupSettings,
        options: JoinOptions,
    ) -> Result<(), JoinError>;

    /// Requests a lock of a group.
    ///
    /// The lock is granted immediately if it is free. Otherwise, this node waits behind all earlier
    /// requests. The outcome is reported by a [`RingNews::Lock`](crate::ring::RingNews::Lock). It
    /// is a refusal if the ring has its maximum number of locks. A joining node can already request
    /// locks.
    ///
    /// A node holds a lock only once, until it calls [`Self::unlock`] or leaves. If it is removed
    /// from the ring, its locks are reported as [lost](crate::ring::LockChange::Lost).
    ///
    /// # Errors
    /// Returns an error if the node is not in the group, has already requested the lock, or has too
    /// many requests.
    fn lock(&mut self, now: Time, group: GroupId, name: LockName) -> Result<(), LockError>;

    /// Requests a lock like [`Self::lock`], but does not wait. If another member holds the lock,
    /// the outcome is [`LockChange::Refused`](crate::ring::LockChange::Refused).
    ///
    /// # Errors
    /// Returns the same errors as [`Self::lock`].
    fn try_lock(&mut self, now: Time, group: GroupId, name: LockName) -> Result<(), LockError>;

    /// Releases a lock, or stops waiting for it. The outcome is
    /// [`LockChange::Released`](crate::ring::LockChange::Released), unless the lock is requested
    /// again first.
    ///
    /// # Errors
    /// Returns an error if the node is not in the group, or has not requested the lock.
    fn unlock(&mut self, now: Time, group: GroupId, name: LockName) -> Result<(), LockError>;

    /// Sends a request to a group, as a member of it or as a node that is not in it.
    ///
    /// Every member receives it as [`RingNews::Request`](crate::ring::RingNews::Request) at its
    /// place among the messages, and this node receives one
    /// [`RingNews::Answer`](crate::ring::RingNews::Answer).
    ///
    /// With a [handler](RequestOptions::handler), the answer is the reply of the holder of the
    /// handler's lock, or of the next holder if it fails. If the lock is free, the request waits
    /// for a holder. Without a handler, the answer acknowledges the delivery with the request's
    /// [guarantee](RequestOptions::qos). A request may be executed twice
    /// ([`Request::may_be_done`](crate::ring::Request::may_be_done)).
    ///
    /// # Errors
    /// Returns an error if the request is too large, its guarantee is not available in the group,
    /// too many requests or bytes wait, or the node is leaving the group.
    fn request(
        &mut self,
        now: Time,
        group: GroupId,
        payload: Bytes,
        options: RequestOptions,
    ) -> Result<RequestId, RequestError>;

    /// Replies once to a request that this member [has to answer](crate::ring::Request::is_ours).
    ///
    /// # Errors
    /// Returns an error if the node is not in the group, the request is not open, the reply is too
    /// large, or the send queue is full.
    fn reply(
        &mut self,
        now: Time,
        group: GroupId,
        request: RequestId,
        payload: Bytes,
    ) -> Result<(), ReplyError>;

    /// Requests that the members of a ring continue without a majority of its electorate. Only an
    /// operator who has verified that the other voters will not return should use it: if one of
    /// them still works elsewhere, two rings order messages and grant locks from then on.
    ///
    /// `epoch` names the ring, as shown by a [query](Self::query). `lost` lists each of its voters
    /// that no longer answers. Nothing happens if a voter that is not listed is silent, if a listed
    /// voter answers, or if the ring works. The view that follows has [`RingView::is_forced`] set.
    fn force_quorum(&mut self, now: Time, group: GroupId, epoch: Epoch, lost: Vec<NodeId>);

    /// Queries the rings of a group without becoming a member. A node that is in a ring of the
    /// group reports that ring and sends no query.
    ///
    /// [`Self::poll_query`] returns the result once no other ring has answered for some time, and
    /// at the latest after [`QueryOptions::patience`].
    ///
    /// # Errors
    /// Returns an error if too many of this node's queries are in progress or were not fetched.
    fn query(
        &mut self,
        now: Time,
        group: GroupId,
        options: QueryOptions,
    ) -> Result<QueryId, QueryError>;

    /// Returns the result of the next completed query, or `None` if there is none.
    fn poll_query(&mut self) -> Option<QueryResult>;
}

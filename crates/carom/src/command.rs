//! What handles ask of the driver.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use async_channel::Sender;
use bytes::Bytes;
use carom_proto::rmp::{Epoch, LockName, LookOptions, ReplyError, RequestId, RequestOptions};
use carom_proto::{GroupId, NodeId, Safe};

use crate::call::Caller;
use crate::error::NotSafe;
use crate::group::GroupShared;
use crate::host::Host;
use crate::lock;
use crate::look::Looker;
use crate::pending_joins::Joiner;
use crate::profile::Profile;
use crate::status::Status;
use crate::udp::UdpNetwork;

/// A request to a driver.
pub(crate) enum Command {
    /// Drive this node too, under this key.
    Attach { key: usize, host: Box<Host<UdpNetwork>>, reply: SyncSender<io::Result<()>> },
    /// Something for one node.
    Node { key: usize, command: NodeCommand },
}

/// A request to one node. Each reply has room for one answer; if nobody waits for it any more it
/// is closed. What comes by the handle of a group that was left is not done, even if the node is
/// in the group again by another handle: the reply is dropped, which says so.
pub(crate) enum NodeCommand {
    /// Join a group.
    Join { name: String, profile: Profile, reply: Joiner },
    /// Leave a group, if this handle of it is still the one in use.
    Leave { shared: Arc<GroupShared> },
    /// Find out whether all members have what was sent.
    Confirm {
        shared: Arc<GroupShared>,
        /// The number of the message in question; `None` for all that were published.
        message: Option<u64>,
        timeout: Duration,
        reply: Sender<Result<Safe, NotSafe>>,
    },
    /// Make a request to a group: as a member by this handle, or as a node that need not be in it.
    Request {
        group: GroupId,
        shared: Option<Arc<GroupShared>>,
        payload: Bytes,
        options: RequestOptions,
        reply: Caller,
    },
    /// Reply to a request.
    Reply {
        shared: Arc<GroupShared>,
        request: RequestId,
        payload: Bytes,
        reply: Sender<Result<(), ReplyError>>,
    },
    /// Look at the rings of a group.
    Look { group: GroupId, options: LookOptions, reply: Looker },
    /// Ask the members of a ring to continue without a quorum.
    ForceQuorum { group: GroupId, epoch: Epoch, lost: Vec<NodeId> },
    /// Ask for a lock; whether it is waited for.
    Lock { shared: Arc<GroupShared>, name: LockName, waits: bool, reply: lock::Reply },
    /// A task waits for a lock no more.
    GiveUpLock { shared: Arc<GroupShared>, name: LockName },
    /// Give a lock back that was granted with this number.
    Unlock { shared: Arc<GroupShared>, name: LockName, grant: u64 },
    /// The application has made room in the group's queue of events.
    Room { group: GroupId },
    /// Tell the status.
    Status { reply: Sender<Status> },
    /// Stumble, to see what the handles say.
    #[cfg(test)]
    Panic,
    /// Say good-bye to the others and stop.
    Close { reply: Sender<()> },
}

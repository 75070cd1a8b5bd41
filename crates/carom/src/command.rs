//! Commands of handles to the driver.

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

/// Command to a driver.
pub(crate) enum Command {
    /// Attaches a node under this key.
    Attach { key: usize, host: Box<Host<UdpNetwork>>, reply: SyncSender<io::Result<()>> },
    /// Passes a command to one node.
    Node { key: usize, command: NodeCommand },
}

/// Command to one node. Each reply channel has room for one reply and is closed if the caller no
/// longer waits. A command with a handle of a group that was left is not executed, even if the node
/// has joined the group again through another handle: the reply channel is dropped, which the
/// caller notices.
pub(crate) enum NodeCommand {
    /// Joins a group.
    Join { name: String, profile: Profile, reply: Joiner },
    /// Leaves a group, if this handle of it is still in use.
    Leave { shared: Arc<GroupShared> },
    /// Waits until what was sent is settled at all members.
    Confirm {
        shared: Arc<GroupShared>,
        /// Number of the message; `None` for all that were published.
        message: Option<u64>,
        timeout: Duration,
        reply: Sender<Result<Safe, NotSafe>>,
    },
    /// Sends a request to a group: as a member with this handle, or from outside the group.
    Request {
        group: GroupId,
        shared: Option<Arc<GroupShared>>,
        payload: Bytes,
        options: RequestOptions,
        reply: Caller,
    },
    /// Replies to a request.
    Reply {
        shared: Arc<GroupShared>,
        request: RequestId,
        payload: Bytes,
        reply: Sender<Result<(), ReplyError>>,
    },
    /// Queries the rings of a group.
    Look { group: GroupId, options: LookOptions, reply: Looker },
    /// Requests the members of a ring to continue without a quorum.
    ForceQuorum { group: GroupId, epoch: Epoch, lost: Vec<NodeId> },
    /// Requests a lock, and waits for it if `waits` is `true`.
    Lock { shared: Arc<GroupShared>, name: LockName, waits: bool, reply: lock::Reply },
    /// Withdraws the lock requests of tasks that no longer wait.
    GiveUpLock { shared: Arc<GroupShared>, name: LockName },
    /// Releases a lock that was granted with this number.
    Unlock { shared: Arc<GroupShared>, name: LockName, grant: u64 },
    /// Reports that the application has made room in the group's event queue.
    Room { group: GroupId },
    /// Returns the status.
    Status { reply: Sender<Status> },
    /// Panics, to test the handles.
    #[cfg(test)]
    Panic,
    /// Notifies the other nodes, and closes the node.
    Close { reply: Sender<()> },
}

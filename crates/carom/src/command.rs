//! What handles ask of the driver.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use async_channel::Sender;
use bytes::Bytes;
use carom_proto::rmp::{LockName, ReplyError, RequestId, RequestOptions, Timestamp};
use carom_proto::{GroupId, Safe};

use crate::call::Caller;
use crate::error::NotSafe;
use crate::group::GroupShared;
use crate::host::Host;
use crate::lock;
use crate::profile::Profile;
use crate::status::Status;
use crate::udp::UdpNetwork;
use crate::waiting::Joiner;

/// A request to a driver.
pub(crate) enum Command {
    /// Drive this node too, under this key.
    Attach { key: usize, host: Box<Host<UdpNetwork>>, reply: SyncSender<io::Result<()>> },
    /// Something for one node.
    Node { key: usize, command: NodeCommand },
}

/// A request to one node. Each reply has room for one answer; if nobody waits for it any more it
/// is closed.
pub(crate) enum NodeCommand {
    /// Join a group.
    Join { name: String, profile: Profile, reply: Joiner },
    /// Leave a group, if this handle of it is still the one in use.
    Leave { shared: Arc<GroupShared> },
    /// Find out whether all members have what was sent.
    Confirm { group: GroupId, timeout: Duration, reply: Sender<Result<Safe, NotSafe>> },
    /// Make a request to a group, whether the node is in it or not.
    Request { group: GroupId, payload: Bytes, options: RequestOptions, reply: Caller },
    /// Reply to a request.
    Reply {
        group: GroupId,
        request: RequestId,
        payload: Bytes,
        reply: Sender<Result<(), ReplyError>>,
    },
    /// Ask for a lock; whether it is waited for.
    Lock { group: GroupId, name: LockName, waits: bool, reply: lock::Reply },
    /// Give a lock back that was granted with this number.
    Unlock { shared: Arc<GroupShared>, name: LockName, fence: Timestamp },
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

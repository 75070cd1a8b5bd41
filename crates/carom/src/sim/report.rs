//! Reports of the nodes to the world.

use carom_proto::{GroupId, GroupSettings};

#[derive(Debug)]
pub(crate) enum Report {
    /// The node joins the multicast of the group.
    ListensTo(GroupId),
    /// The node leaves the multicast of the group.
    StopsListening(GroupId),
    /// For the oracle: the node has joined the group, with the number of this stay.
    Joined(GroupId, GroupSettings, u32),
    /// For the oracle: the node has left the group.
    Left(GroupId),
    /// The node has notified the others, and is closed.
    Closed,
}

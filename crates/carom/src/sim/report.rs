use carom_proto::{GroupId, GroupSettings};

#[derive(Debug)]
pub(crate) enum Report {
    ListensTo(GroupId),
    StopsListening(GroupId),
    /// The node has joined the group, with the number of this stay. Only the oracle uses it.
    Joined(GroupId, GroupSettings, u32),
    Left(GroupId),
    /// The node has notified the other nodes and is closed.
    Closed,
}

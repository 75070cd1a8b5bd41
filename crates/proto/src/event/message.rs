use core::time::Duration;

use bytes::Bytes;

use crate::ring::Place;
use crate::{GroupId, NodeId, SeqNo};

/// A delivered message.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Group of the message.
    pub group: GroupId,
    /// Node that multicast the message.
    pub sender: NodeId,
    /// Sequence number of the first packet of the message, among the sender's packets in the group.
    pub seqno: SeqNo,
    /// Content of the message. It may share its allocation with other messages, which keeps them in
    /// memory: copy the content to store it for a long time.
    pub payload: Bytes,
    /// Source of the content, or of the packet that was missing longest.
    pub how: How,
    /// Time from multicast to delivery. `None` if it is not measured or the nodes' clocks disagree.
    pub age: Option<Duration>,
    /// Time for which the message, or its longest missing packet, was known to be missing.
    pub missing_for: Duration,
    /// Place in the total order. `None` for messages with a weaker guarantee than [total
    /// order](crate::ring::Qos::TotallyOrdered), and for messages of other engines.
    pub place: Option<Place>,
}

/// Source of a delivered message's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// The sender's multicast was received.
    Direct,
    /// The content was recovered from repairs, one of which came from the given node.
    Recovered(NodeId),
    /// The given node retransmitted the content on request.
    Retransmitted(NodeId),
}

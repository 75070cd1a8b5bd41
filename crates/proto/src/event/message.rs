//! Delivered messages.

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
    /// Position among the sender's packets in the group.
    ///
    /// A message that does not fit one packet uses one number per packet. This is the first of
    /// them.
    pub seqno: SeqNo,
    /// Content of the message. It may share its allocation with other messages: copy it to keep it
    /// for a long time.
    pub payload: Bytes,
    /// Source of the content: the sender's multicast, repairs or a retransmission.
    ///
    /// For a message of several packets, this is the packet that was missing longest before it was
    /// repaired, if any was.
    pub how: How,
    /// Time from the message's multicast to its delivery. `None` if the clocks of the two nodes
    /// disagree, or if the engine does not measure it.
    pub age: Option<Duration>,
    /// Time for which the message was known to be missing. Zero unless it was repaired.
    ///
    /// For a message of several packets, this is the longest time of one packet.
    pub missing_for: Duration,
    /// Place in the total order.
    ///
    /// `None` for messages sent with a weaker guarantee than
    /// [total order](crate::ring::Qos::TotallyOrdered), and for those of other engines.
    pub place: Option<Place>,
}

/// Source of a delivered message's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Received by the sender's multicast.
    Direct,
    /// Recovered from repairs. The node sent the last of them.
    Recovered(NodeId),
    /// Retransmitted by this node on request.
    Retransmitted(NodeId),
}

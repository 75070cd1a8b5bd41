use bytes::Bytes;
use carom_proto::NodeId;
use carom_proto::ring::Qos;

/// The error returned when a message was not published. No part of the message was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// The group's send queue is full. Only calls that never wait return this error.
    #[error("the send queue is full{}", held_back(*held_back_by))]
    Full {
        /// Member that the group waits for, if any, and the number of packets by which it lags.
        held_back_by: Option<(NodeId, u32)>,
        /// The message, returned to the caller.
        payload: Bytes,
    },
    /// The message is larger than [`Group::payload_limit`](crate::Group::payload_limit), or an
    /// unreliable message in an ordered group is larger than one packet.
    #[error("the message is {bytes} bytes long: expected at most {limit}")]
    TooLarge {
        /// Size of the message, in bytes.
        bytes: usize,
        /// Maximum size, in bytes.
        limit: usize,
    },
    /// The group does not offer this quality of service.
    #[error("this group does not support quality of service '{asked}'")]
    Qos {
        /// Requested quality of service.
        asked: Qos,
    },
    /// The group was left, this node was refused or removed, or its node is closed.
    #[error("the group is closed")]
    Closed,
}

impl PublishError {
    /// Returns `true` if the send queue is full, so that the message can be published later.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Full { .. })
    }

    /// Returns a one-line suggestion for how to fix the error.
    pub fn fix(&self) -> String {
        match self {
            Self::Full { held_back_by: Some(_), .. } => {
                "try again when that member has caught up, or use a publish call that waits".into()
            }
            Self::Full { held_back_by: None, .. } => "publish more slowly, or wait".into(),
            Self::TooLarge { limit, .. } => {
                format!("split the message into parts of at most {limit} bytes")
            }
            Self::Qos { asked: Qos::Resilient(0) } => {
                "request Resilient(1) to Resilient(255), or TotallyOrdered".into()
            }
            Self::Qos { asked: Qos::MajorityResilient } => {
                "join with Quorum::Majority or Quorum::All".into()
            }
            Self::Qos { .. } => "join the group with an ordered profile".into(),
            Self::Closed => "join the group again".into(),
        }
    }
}

fn held_back(by: Option<(NodeId, u32)>) -> String {
    by.map(|(node, behind)| {
        let noun = if behind == 1 { "packet" } else { "packets" };
        format!(": member {node} is {behind} {noun} behind")
    })
    .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_packet_behind_is_singular() {
        let told = |behind| held_back(Some((NodeId(1), behind)));
        assert!(told(1).ends_with(" is 1 packet behind"), "{}", told(1));
        assert!(told(2).ends_with(" is 2 packets behind"), "{}", told(2));
    }
}

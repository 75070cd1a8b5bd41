use super::limits::VERSION;
use crate::GroupId;
use crate::wire::DecodeError;

/// Reason why bytes are not a valid frame. All but [`FrameError::Settings`] end the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The length is 0, contradicts the fields, or exceeds the maximum.
    #[error("wrong length")]
    Length,
    /// A hello does not begin with [`MAGIC`](super::limits::MAGIC).
    #[error("the first bytes are not those of the membership protocol")]
    Magic,
    /// A hello or welcome has another version.
    #[error("protocol version {given} is not supported: expected {VERSION}")]
    Version {
        /// Version in the frame.
        given: u16,
    },
    /// The kind of the frame is unknown.
    #[error("the kind of the frame is unknown")]
    Kind,
    /// A field has an invalid value.
    #[error("invalid value")]
    Value,
    /// The frame has group settings of a later version. The following frames can be decoded.
    #[error("unknown group settings")]
    Settings(UnknownSettings),
}

impl From<DecodeError> for FrameError {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::Length => Self::Length,
            DecodeError::Kind => Self::Kind,
            _ => Self::Value,
        }
    }
}

/// A frame with unknown group settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "fields have the names of the wire format")]
pub enum UnknownSettings {
    /// A [`Frame::Join`](super::frame::Frame::Join) with unknown group settings.
    Join { request: u32, group: GroupId },
    /// A [`Frame::JoinRefused`](super::frame::Frame::JoinRefused) with unknown group settings.
    JoinRefused { request: u32, group: GroupId },
    /// A [`Frame::Snapshot`](super::frame::Frame::Snapshot) of a group with unknown settings.
    Snapshot { group: GroupId },
}

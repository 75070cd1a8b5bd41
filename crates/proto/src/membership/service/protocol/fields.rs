//! Fields shared by several frames, and bounds-checked decoding of them.

use bytes::{Buf, BufMut};

use super::error::FrameError;
use super::limits::MAX_TEXT_BYTES;
use crate::settings::SETTINGS_BYTES;
use crate::wire::{self, DecodeError};
use crate::{Endpoint, GroupId, GroupSettings, Incarnation, NodeId};

/// A node in one of its incarnations, with its endpoint.
///
/// | offset | bytes | field | meaning |
/// |---|---|---|---|
/// | 0 | 8 | node | [`NodeId`] |
/// | 8 | 4 | incarnation | number of times the node came back under its id |
/// | 12 | 8 | start | [`Incarnation`]: random bits, drawn when the process started |
/// | 20 | 2 | port | UDP |
/// | 22 | 1 | family | 4 or 6 |
/// | 23 | 4 or 16 | address | all zero: the source address of the node's connection |
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    /// The node.
    pub node: NodeId,
    /// Number of the incarnation. Reports about an earlier one no longer apply.
    pub incarnation: u32,
    /// Start of the process. Two starts under one node id have different values.
    pub start: Incarnation,
    /// UDP endpoint of the node.
    pub endpoint: Endpoint,
}

impl Member {
    /// Appends the encoded member. A store may use the same format.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.node.0);
        out.put_u32(self.incarnation);
        out.put_u64(self.start.0);
        wire::put_endpoint(out, self.endpoint);
    }

    /// Decodes a member at the start of `bytes`, and advances `bytes` past it.
    ///
    /// # Errors
    /// The bytes are too few, or the address has an unknown family.
    pub fn decode(bytes: &mut &[u8]) -> Result<Self, FrameError> {
        let (node, incarnation) = (take_node(bytes)?, take_u32(bytes)?);
        let start = Incarnation(take_u64(bytes)?);
        Ok(Self { node, incarnation, start, endpoint: take_endpoint(bytes)? })
    }

    /// Returns `true` if this incarnation of the node has ended, given that `other` exists.
    ///
    /// `other` is then a later one, or the same one of another start. Of the latter, neither is
    /// known to be the later one.
    pub(crate) fn is_over(&self, other: &Self) -> bool {
        self.incarnation <= other.incarnation && !self.is_same_life(other)
    }

    /// Returns `true` if both are the same incarnation of the same start.
    pub(crate) fn is_same_life(&self, other: &Self) -> bool {
        (self.incarnation, self.start) == (other.incarnation, other.start)
    }
}

/// Minimum encoded size of a [`Member`] in bytes.
pub(super) const MEMBER_BYTES: usize = 27;
/// Minimum encoded size of an [`Endpoint`] in bytes.
pub(super) const ENDPOINT_BYTES: usize = 7;

pub(super) fn take_endpoint(bytes: &mut &[u8]) -> Result<Endpoint, FrameError> {
    wire::take_endpoint(bytes).map_err(|error| match error {
        DecodeError::Value => FrameError::Value,
        _ => FrameError::Length,
    })
}

/// Appends one byte of length, then UTF-8. A text longer than [`MAX_TEXT_BYTES`] is cut between two
/// characters.
pub(super) fn put_text(out: &mut Vec<u8>, text: &str) {
    let mut end = text.len().min(MAX_TEXT_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    out.put_u8(end as u8);
    out.put_slice(&text.as_bytes()[..end]);
}

pub(super) fn take_text(bytes: &mut &[u8]) -> Result<String, FrameError> {
    let length = usize::from(take_u8(bytes)?);
    let (text, rest) = bytes.split_at_checked(length).ok_or(FrameError::Length)?;
    *bytes = rest;
    core::str::from_utf8(text).map(str::to_string).map_err(|_| FrameError::Value)
}

/// Decodes settings, or returns `None` if this program does not know them.
pub(crate) fn take_settings(bytes: &mut &[u8]) -> Result<Option<GroupSettings>, FrameError> {
    let (settings, rest) = bytes.split_at_checked(SETTINGS_BYTES).ok_or(FrameError::Length)?;
    *bytes = rest;
    Ok(GroupSettings::decode(settings).ok().map(|(settings, _)| settings))
}

pub(crate) fn take_group(bytes: &mut &[u8]) -> Result<GroupId, FrameError> {
    match take_u32(bytes)? {
        0 => Err(FrameError::Value),
        id => Ok(GroupId(id)),
    }
}

pub(super) fn take_node(bytes: &mut &[u8]) -> Result<NodeId, FrameError> {
    take_u64(bytes).map(NodeId)
}

/// Decodes the count of elements of at least `each` bytes. A count that exceeds the remaining bytes
/// is rejected before memory is allocated for it.
pub(super) fn take_count(bytes: &mut &[u8], each: usize) -> Result<usize, FrameError> {
    let count = take_u32(bytes)? as usize;
    if count > bytes.len() / each { Err(FrameError::Length) } else { Ok(count) }
}

pub(super) fn take_flag(bytes: &mut &[u8]) -> Result<bool, FrameError> {
    match take_u8(bytes)? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(FrameError::Value),
    }
}

pub(crate) fn take_u8(bytes: &mut &[u8]) -> Result<u8, FrameError> {
    bytes.try_get_u8().map_err(|_| FrameError::Length)
}

pub(super) fn take_u16(bytes: &mut &[u8]) -> Result<u16, FrameError> {
    bytes.try_get_u16().map_err(|_| FrameError::Length)
}

pub(super) fn take_u32(bytes: &mut &[u8]) -> Result<u32, FrameError> {
    bytes.try_get_u32().map_err(|_| FrameError::Length)
}

pub(crate) fn take_u64(bytes: &mut &[u8]) -> Result<u64, FrameError> {
    bytes.try_get_u64().map_err(|_| FrameError::Length)
}

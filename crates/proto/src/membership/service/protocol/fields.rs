use super::limits::MAX_TEXT_BYTES;
use crate::codec::{Field, take_entries};
use crate::wire::DecodeError;
use crate::{Endpoint, GroupId, Incarnation, NodeId};

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
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub struct Member {
    /// Id of the node.
    pub node: NodeId,
    /// Number of the incarnation. Reports about an earlier one no longer apply.
    pub incarnation: u32,
    /// Identifier of the process's start. Two starts under the same node id have different values.
    pub start: Incarnation,
    /// UDP endpoint of the node.
    pub endpoint: Endpoint,
}

crate::fields! {
    Member { node, incarnation, start, endpoint };
}

impl Member {
    /// Returns `true` if this incarnation of the node has ended, given that `other` exists.
    ///
    /// `other` is then a later incarnation, or the same incarnation of another start. In the second
    /// case, the order of the two starts is unknown.
    pub(crate) fn is_over(&self, other: &Self) -> bool {
        self.incarnation <= other.incarnation && !self.is_same_life(other)
    }

    pub(crate) fn is_same_life(&self, other: &Self) -> bool {
        (self.incarnation, self.start) == (other.incarnation, other.start)
    }
}

/// A length u8, then UTF-8. A text longer than [`MAX_TEXT_BYTES`] is cut between two characters.
impl<'a> Field<'a> for String {
    fn put(&self, out: &mut Vec<u8>) {
        let mut end = self.len().min(MAX_TEXT_BYTES);
        while !self.is_char_boundary(end) {
            end -= 1;
        }
        (end as u8, &self.as_bytes()[..end]).put(out);
    }

    fn take(bytes: &mut &'a [u8]) -> Result<Self, DecodeError> {
        let length = usize::from(u8::take(bytes)?);
        let (text, rest) = bytes.split_at_checked(length).ok_or(DecodeError::Length)?;
        *bytes = rest;
        core::str::from_utf8(text).map(str::to_string).map_err(|_| DecodeError::Value)
    }
}

pub(crate) mod one_group {
    use super::{DecodeError, Field, GroupId};

    pub(crate) fn put(group: &GroupId, out: &mut Vec<u8>) {
        group.put(out);
    }

    pub(crate) fn take(bytes: &mut &[u8]) -> Result<GroupId, DecodeError> {
        match GroupId::take(bytes)? {
            GroupId::NONE => Err(DecodeError::Value),
            group => Ok(group),
        }
    }
}

pub(super) mod long_list {
    use super::{DecodeError, Field, take_entries};

    pub(in super::super) fn put<'a, T: Field<'a>>(entries: &[T], out: &mut Vec<u8>) {
        (entries.len() as u32).put(out);
        entries.iter().for_each(|entry| entry.put(out));
    }

    pub(in super::super) fn take<'a, T: Field<'a>>(
        bytes: &mut &'a [u8],
    ) -> Result<Vec<T>, DecodeError> {
        let count = u32::take(bytes)?;
        take_entries(count as usize, bytes)
    }
}

/// A list of at most one member, with a count u32.
pub(super) mod member_or_none {
    use super::{DecodeError, Member, long_list};

    pub(in super::super) fn put(member: &Option<Member>, out: &mut Vec<u8>) {
        long_list::put(member.as_slice(), out);
    }

    pub(in super::super) fn take(bytes: &mut &[u8]) -> Result<Option<Member>, DecodeError> {
        match long_list::take(bytes)?[..] {
            [] => Ok(None),
            [member] => Ok(Some(member)),
            _ => Err(DecodeError::Value),
        }
    }
}

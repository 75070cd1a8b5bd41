//! Streams of one group.

use super::{Stream, StreamIx, Streams};
use crate::NodeId;
use crate::lateral::groups::GroupIx;

impl Streams {
    pub(crate) fn of_group(&self, group: GroupIx) -> impl Iterator<Item = &Stream> {
        self.by_group.of(group).iter().map(|ix| self.get(*ix))
    }

    /// Returns a stream of `group` with nothing held or missing whose sender `departed`. Only a few
    /// streams are checked in each call, and the next ones in the next call, because non-members
    /// can cause a call with each datagram.
    pub(crate) fn next_silent(
        &mut self,
        group: GroupIx,
        departed: impl Fn(NodeId) -> bool,
    ) -> Option<StreamIx> {
        let Self { by_group, slots, .. } = self;
        by_group.find_next(group, MAX_LOOKED_AT, |ix| {
            let stream = slots[ix.0 as usize].as_ref();
            stream.is_some_and(|stream| stream.slots.is_empty() && departed(stream.sender))
        })
    }
}

/// Maximum number of streams of a group that are checked in one call.
const MAX_LOOKED_AT: usize = 64;

//! Streams that a node has received and that are over here, perhaps not for their senders: who was
//! stopped for a while takes a sender for gone that is there, and who is cut off from its sender
//! follows another one.

use alloc::collections::VecDeque;

use crate::NodeId;

/// A stream that is over here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) sender: NodeId,
    pub(super) stream: u32,
    /// What lies before this packet was delivered or reported as lost.
    pub(super) told_to: u64,
    /// The epoch of the place that the node had last.
    pub(super) epoch: u32,
}

/// The streams that were over last.
#[derive(Debug, Default)]
pub(super) struct EndedStreams(VecDeque<Ended>);

/// Streams of which it is known where they were left. Of an earlier one the rest may come again.
const MOST: usize = 64;

impl EndedStreams {
    /// A stream is over.
    pub(super) fn push(&mut self, ended: Ended) {
        self.take(ended.sender, ended.stream);
        if self.0.len() == MOST {
            self.0.pop_front();
        }
        self.0.push_back(ended);
    }

    /// Where a stream was left.
    pub(super) fn of(&self, sender: NodeId, stream: u32) -> Option<&Ended> {
        self.0.iter().find(|it| (it.sender, it.stream) == (sender, stream))
    }

    /// The same, if it is to be told of more losses.
    pub(super) fn of_mut(&mut self, sender: NodeId, stream: u32) -> Option<&mut Ended> {
        self.0.iter_mut().find(|it| (it.sender, it.stream) == (sender, stream))
    }

    /// A stream goes on.
    pub(super) fn take(&mut self, sender: NodeId, stream: u32) -> Option<Ended> {
        let place = self.0.iter().position(|it| (it.sender, it.stream) == (sender, stream))?;
        self.0.remove(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_found_until_many_others_are_over() {
        let of = |stream| Ended { sender: NodeId(1), stream, told_to: 5, epoch: 7 };
        let mut ended = EndedStreams::default();
        (0..MOST as u32).for_each(|stream| ended.push(of(stream)));
        ended.push(of(3));
        assert_eq!(ended.of(NodeId(1), 0), Some(&of(0)), "the same one does not count twice");
        ended.push(of(1000));
        assert_eq!(ended.of(NodeId(1), 0), None);
        assert_eq!(ended.take(NodeId(1), 3), Some(of(3)));
        assert_eq!(ended.take(NodeId(1), 3), None);
    }
}

//! Streams that ended at this receiver, although their senders may continue. A node that was
//! suspended can take a live sender for gone, and a node that is cut off from its sender follows
//! another one.

use alloc::collections::VecDeque;

use crate::NodeId;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EndedStream {
    pub(crate) sender: NodeId,
    pub(crate) stream: u32,
    /// All packets before this one were delivered or reported as lost.
    pub(crate) accounted_to: u64,
    pub(crate) epoch: u32,
}

/// The streams that ended most recently, oldest first.
#[derive(Debug, Default)]
pub(crate) struct EndedStreams(VecDeque<EndedStream>);

/// Maximum number of streams whose end is remembered. Packets of an earlier stream may be delivered
/// again.
const MOST: usize = 64;

impl EndedStreams {
    pub(crate) fn push(&mut self, ended: EndedStream) {
        self.take(ended.sender, ended.stream);
        if self.0.len() == MOST {
            self.0.pop_front();
        }
        self.0.push_back(ended);
    }

    pub(crate) fn of_mut(&mut self, sender: NodeId, stream: u32) -> Option<&mut EndedStream> {
        self.0.iter_mut().find(|it| (it.sender, it.stream) == (sender, stream))
    }

    /// Removes a stream, which continues.
    pub(crate) fn take(&mut self, sender: NodeId, stream: u32) -> Option<EndedStream> {
        let place = self.0.iter().position(|it| (it.sender, it.stream) == (sender, stream))?;
        self.0.remove(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_found_until_many_others_are_over() {
        let of = |stream| EndedStream { sender: NodeId(1), stream, accounted_to: 5, epoch: 7 };
        let mut ended = EndedStreams::default();
        (0..MOST as u32).for_each(|stream| ended.push(of(stream)));
        ended.push(of(3));
        assert_eq!(
            ended.of_mut(NodeId(1), 0),
            Some(&mut of(0)),
            "the same one does not count twice"
        );
        ended.push(of(1000));
        assert_eq!(ended.of_mut(NodeId(1), 0), None);
        assert_eq!(ended.take(NodeId(1), 3), Some(of(3)));
        assert_eq!(ended.take(NodeId(1), 3), None);
    }
}

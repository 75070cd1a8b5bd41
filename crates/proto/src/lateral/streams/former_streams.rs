//! Positions in streams that this node does not currently follow: streams in groups that it left,
//! of departed senders, and of former incarnations, whose last packets may arrive late.

use crate::incarnations::LATE_FOR;
use crate::recent::Recent;
use crate::{Incarnation, NodeId, SeqNo, Time};

#[derive(Debug, Default)]
pub(crate) struct FormerStreams(Recent<(NodeId, Option<Incarnation>), FormerStream>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FormerStream {
    pub(crate) to: SeqNo,
    /// Time at which another incarnation of the sender replaced this one, if any.
    pub(crate) over_since: Option<Time>,
}

impl FormerStream {
    /// Returns `true` while the last packets of this incarnation may still be in flight. Such
    /// packets do not make the incarnation current.
    fn is_late(&self, now: Time) -> bool {
        self.over_since.is_some_and(|since| now < since + LATE_FOR)
    }
}

impl FormerStreams {
    pub(crate) fn note(
        &mut self,
        sender: NodeId,
        incarnation: Option<Incarnation>,
        former: FormerStream,
        limit: usize,
    ) {
        self.0.insert((sender, incarnation), former, limit);
    }

    pub(crate) fn is_late(&self, now: Time, sender: NodeId, number: SeqNo) -> bool {
        self.near(sender, number).any(|(_, former)| former.is_late(now))
    }

    pub(crate) fn take_near(
        &mut self,
        sender: NodeId,
        number: SeqNo,
    ) -> Option<(Option<Incarnation>, SeqNo)> {
        let (incarnation, former) = self.near(sender, number).next()?;
        self.0.remove((sender, incarnation));
        Some((incarnation, former.to))
    }

    pub(crate) fn take_start(&mut self, sender: NodeId, incarnation: Incarnation) -> Option<SeqNo> {
        self.0.remove((sender, Some(incarnation))).map(|former| former.to)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    fn near(
        &self,
        sender: NodeId,
        number: SeqNo,
    ) -> impl Iterator<Item = (Option<Incarnation>, FormerStream)> {
        let all = (sender, None)..=(sender, Some(Incarnation(u64::MAX)));
        let near = self.0.range(all).filter(move |(_, former)| number.is_near(former.to));
        near.map(|((_, incarnation), former)| (*incarnation, *former))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn former(to: u32) -> FormerStream {
        FormerStream { to: SeqNo(to), over_since: None }
    }

    #[test]
    fn each_start_of_a_sender_is_found_by_its_numbers_and_once() {
        let mut heard = FormerStreams::default();
        let (sender, other) = (NodeId(4), NodeId(5));
        heard.note(sender, Some(Incarnation(1)), former(1000), 3);
        heard.note(sender, Some(Incarnation(2)), former(1 << 31), 3);
        heard.note(other, None, former(500), 3);
        assert_eq!(heard.take_near(sender, SeqNo(1 << 20)), None);
        let near = heard.take_near(sender, SeqNo(u32::MAX));
        assert_eq!(near, Some((Some(Incarnation(1)), SeqNo(1000))), "the numbers wrap");
        assert_eq!(heard.take_start(other, Incarnation(1)), None);
        assert_eq!(heard.take_near(other, SeqNo(500)), Some((None, SeqNo(500))));
        assert_eq!(heard.len(), 1);
        (0..9).for_each(|node| heard.note(NodeId(node), None, former(1), 3));
        assert_eq!(heard.len(), 3);
    }

    #[test]
    fn streams_that_ended_first_are_forgotten() {
        let mut heard = FormerStreams::default();
        for node in [8, 6, 4, 2] {
            heard.note(NodeId(node), None, former(node as u32), 3);
        }
        let kept = [8, 6, 4, 2].map(|node| heard.take_near(NodeId(node), SeqNo(1)).is_some());
        assert_eq!(kept, [false, true, true, true]);
    }

    #[test]
    fn start_is_over_for_a_second_after_another_took_its_place() {
        let mut heard = FormerStreams::default();
        let (sender, start) = (NodeId(4), Incarnation(1));
        let former = FormerStream { to: SeqNo(9), over_since: Some(Time(5)) };
        heard.note(sender, Some(start), former, 3);
        let [soon, later] = [999_999_999, 1_000_000_005].map(Time);
        assert!(heard.is_late(soon, sender, SeqNo(50)));
        assert!(!heard.is_late(soon, sender, SeqNo(1 << 20)));
        assert!(!heard.is_late(later, sender, SeqNo(50)));
    }
}

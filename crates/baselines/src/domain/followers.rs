//! Acknowledged positions of a node's children in one stream.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use carom_proto::{NodeId, SeqNo, Time};

#[derive(Debug)]
pub(crate) struct Followers {
    /// Sequence number after the last packet available to the children.
    next: SeqNo,
    /// Lowest position among the children that are waited for, or `next` if there are none.
    first: SeqNo,
    children: BTreeMap<NodeId, Child>,
    /// Children that have settled everything before `next`.
    abreast: BTreeSet<NodeId>,
    is_stale: bool,
}

#[derive(Debug)]
struct Child {
    settled_to: SeqNo,
    since: Time,
    is_slow: bool,
}

impl Followers {
    pub(crate) fn new(next: SeqNo) -> Self {
        let (children, abreast) = (BTreeMap::new(), BTreeSet::new());
        Self { next, first: next, children, abreast, is_stale: true }
    }

    pub(crate) fn on_view(&mut self) {
        self.is_stale = true;
    }

    pub(crate) fn refresh(&mut self, now: Time, children: impl FnOnce() -> BTreeSet<NodeId>) {
        if core::mem::take(&mut self.is_stale) {
            self.follow(now, &children());
        }
    }

    pub(crate) fn next(&self) -> SeqNo {
        self.next
    }

    pub(crate) fn behind(&self) -> usize {
        usize::try_from(self.next.distance_from(self.first)).unwrap_or(0)
    }

    pub(crate) fn reach(&mut self, now: Time, next: SeqNo) {
        if !next.is_after(self.next) {
            return;
        }
        self.next = next;
        let children = &mut self.children;
        self.abreast.retain(|node| {
            let Some(child) = children.get_mut(node) else { return false };
            let is_behind = next.is_after(child.settled_to);
            if is_behind {
                child.since = now;
            }
            !is_behind
        });
        self.slide();
    }

    /// Replaces the set of children. New children are waited for from the current end on.
    fn follow(&mut self, now: Time, children: &BTreeSet<NodeId>) {
        self.children.retain(|node, _| children.contains(node));
        self.abreast.retain(|node| children.contains(node));
        for node in children {
            if !self.children.contains_key(node) {
                let child = Child { settled_to: self.next, since: now, is_slow: false };
                self.children.insert(*node, child);
                self.abreast.insert(*node);
            }
        }
        self.slide();
    }

    /// Processes a child's acknowledgment. The child may be ahead of this node.
    pub(crate) fn on_ack(&mut self, now: Time, node: NodeId, settled_to: SeqNo) {
        let Some(child) = self.children.get_mut(&node) else { return };
        if !settled_to.is_after(child.settled_to) {
            return;
        }
        let was = child.settled_to;
        (child.settled_to, child.since) = (settled_to, now);
        child.is_slow &= self.first.is_after(settled_to);
        if !self.next.is_after(settled_to) {
            self.abreast.insert(node);
        }
        if was == self.first {
            self.slide();
        }
    }

    /// Returns the slowest child that is waited for, and how many packets it is behind.
    pub(crate) fn furthest_behind(&self) -> Option<(NodeId, u32)> {
        let behind = |child: &Child| self.next.distance_from(child.settled_to);
        let waited = self.children.iter().filter(|(_, child)| !child.is_slow);
        let (node, child) = waited.max_by_key(|(_, child)| behind(child))?;
        u32::try_from(behind(child)).ok().filter(|count| *count > 0).map(|count| (*node, count))
    }

    /// Returns the children that are behind and have not advanced for `span`. Each is returned with
    /// the first packet that it lacks, and with `true` if it is lagging.
    pub(crate) fn stuck(
        &self,
        now: Time,
        span: Duration,
    ) -> impl Iterator<Item = (NodeId, SeqNo, bool)> {
        let is_behind = |child: &Child| self.next.is_after(child.settled_to);
        let is_stuck = move |child: &Child| is_behind(child) && child.since + span <= now;
        let stuck = self.children.iter().filter(move |(_, child)| is_stuck(child));
        stuck.map(|(node, child)| (*node, child.settled_to, child.is_slow))
    }

    /// Stops waiting for children that are behind and have not advanced for `patience`. Returns
    /// each of them with the number of packets by which it is behind.
    pub(crate) fn give_up_on(&mut self, now: Time, patience: Duration) -> Vec<(NodeId, u32)> {
        let stuck: Vec<(NodeId, SeqNo, bool)> = self.stuck(now, patience).collect();
        let mut slow = Vec::new();
        for (node, settled_to, was_slow) in stuck {
            if !was_slow && let Some(child) = self.children.get_mut(&node) {
                child.is_slow = true;
                slow.push((node, self.next.distance_from(settled_to) as u32));
            }
        }
        self.slide();
        slow
    }

    pub(crate) fn next_stuck(&self, patience: Duration) -> Option<Time> {
        let is_behind = |child: &&Child| self.next.is_after(child.settled_to);
        let waited = self.children.values().filter(is_behind).filter(|child| !child.is_slow);
        waited.map(|child| child.since + patience).min()
    }

    pub(crate) fn is_any_behind(&self) -> bool {
        self.abreast.len() < self.children.len()
    }

    fn slide(&mut self) {
        let waited = self.children.values().filter(|child| !child.is_slow);
        self.first = waited.fold(self.next, |first, child| first.earlier(child.settled_to));
    }

    pub(crate) fn check(&self) {
        for (node, child) in &self.children {
            let is_behind = self.next.is_after(child.settled_to);
            assert_ne!(self.abreast.contains(node), is_behind, "{node} is in the wrong set");
            let is_waited = !child.is_slow && self.first.is_after(child.settled_to);
            assert!(!is_waited, "{node} is waited for, but behind the window");
        }
        assert!(self.abreast.len() <= self.children.len(), "a node in the set is not a child");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Duration = Duration::from_nanos(10);

    fn followers(nodes: &[u64]) -> Followers {
        let mut followers = Followers::new(SeqNo(u32::MAX));
        followers.follow(Time(0), &nodes.iter().copied().map(NodeId).collect());
        followers
    }

    #[test]
    fn the_slowest_of_those_who_are_waited_for_holds_the_window() {
        let mut followers = followers(&[1, 2]);
        assert_eq!((followers.behind(), followers.furthest_behind()), (0, None));
        followers.reach(Time(5), SeqNo(3));
        assert_eq!(followers.behind(), 4);
        followers.on_ack(Time(6), NodeId(1), SeqNo(3));
        followers.on_ack(Time(6), NodeId(2), SeqNo(1));
        followers.on_ack(Time(7), NodeId(2), SeqNo(0));
        assert_eq!(followers.furthest_behind(), Some((NodeId(2), 2)));
        assert_eq!((followers.behind(), followers.next_stuck(SPAN)), (2, Some(Time(16))));
        followers.check();
        followers.follow(Time(8), &[NodeId(1), NodeId(3)].into());
        assert_eq!((followers.behind(), followers.furthest_behind()), (0, None));
        followers.check();
    }

    #[test]
    fn who_does_not_come_on_is_waited_for_no_longer_until_it_does() {
        let mut followers = followers(&[1, 2]);
        followers.reach(Time(5), SeqNo(2));
        followers.on_ack(Time(6), NodeId(1), SeqNo(2));
        assert_eq!(followers.give_up_on(Time(14), SPAN), []);
        assert_eq!(followers.give_up_on(Time(15), SPAN), [(NodeId(2), 3)]);
        assert_eq!((followers.behind(), followers.give_up_on(Time(15), SPAN)), (0, vec![]));
        assert_eq!(followers.next_stuck(SPAN), None);
        assert!(followers.stuck(Time(15), SPAN).eq([(NodeId(2), SeqNo(u32::MAX), true)]));
        followers.reach(Time(16), SeqNo(4));
        followers.on_ack(Time(17), NodeId(2), SeqNo(1));
        assert_eq!(followers.furthest_behind(), Some((NodeId(1), 2)));
        followers.on_ack(Time(17), NodeId(2), SeqNo(3));
        followers.on_ack(Time(17), NodeId(1), SeqNo(4));
        assert_eq!(followers.furthest_behind(), Some((NodeId(2), 1)));
        followers.check();
    }

    #[test]
    fn who_is_ahead_is_not_behind_when_the_others_come() {
        let mut followers = followers(&[1, 2]);
        followers.reach(Time(5), SeqNo(1));
        followers.on_ack(Time(6), NodeId(1), SeqNo(3));
        assert_eq!(followers.furthest_behind(), Some((NodeId(2), 2)));
        followers.on_ack(Time(6), NodeId(2), SeqNo(1));
        assert_eq!((followers.furthest_behind(), followers.behind()), (None, 0));
        followers.reach(Time(7), SeqNo(3));
        assert!(followers.stuck(Time(17), SPAN).eq([(NodeId(2), SeqNo(1), false)]));
        assert!(followers.is_any_behind());
        followers.check();
        followers.reach(Time(8), SeqNo(4));
        assert_eq!(followers.furthest_behind(), Some((NodeId(2), 3)));
        followers.check();
    }
}

use alloc::boxed::Box;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::membership::Membership;
use crate::ring::Quorum;
use crate::{Endpoint, lateral};

/// A membership that settles at [`SETTLED_AT`], and counts the queries about groups.
struct Slow {
    accepts: bool,
    is_settled: bool,
    is_by_group: bool,
    joined: Vec<GroupId>,
    questions: Arc<AtomicU64>,
}

const SETTLED_AT: Time = Time(1_000_000);

impl Membership for Slow {
    fn join(&mut self, _: Time, group: GroupId, _: GroupSettings) -> Result<(), JoinError> {
        if !self.accepts {
            return Err(JoinError::TooManyGroups { limit: 0 });
        }
        self.joined.push(group);
        Ok(())
    }
    fn leave(&mut self, _: Time, _: GroupId) {}
    fn handle_timeout(&mut self, now: Time) {
        self.is_settled |= now >= SETTLED_AT;
    }
    fn poll_event(&mut self) -> Option<MembershipEvent> {
        let tells = self.is_settled && !self.is_by_group && !self.joined.is_empty();
        tells.then(|| {
            self.joined.clear();
            MembershipEvent::Settled
        })
    }
    fn poll_joined(&mut self) -> Option<GroupId> {
        if self.is_settled { self.joined.pop() } else { None }
    }
    fn nodes(&self) -> Vec<(NodeId, Endpoint)> {
        Vec::new()
    }
    fn is_settled(&self) -> bool {
        self.is_settled
    }
    fn has_joined(&self, _: GroupId) -> bool {
        self.questions.fetch_add(1, Ordering::Relaxed);
        self.is_settled
    }
}

fn node(membership: Slow) -> Node {
    Node::new(NodeId(1), lateral::Config::default(), Box::new(membership), 7)
}

fn questions(groups: u64, is_by_group: bool) -> u64 {
    let questions = Arc::new(AtomicU64::new(0));
    let (joined, counted) = (Vec::new(), Arc::clone(&questions));
    let (accepts, is_settled) = (true, false);
    let mut node = node(Slow { accepts, is_settled, is_by_group, joined, questions: counted });
    for number in 0..groups {
        let (at, profile) = (Time(number), Profile::Ordered(Quorum::Majority));
        node.join(at, &format!("group {number}"), profile).expect("the group is new");
        node.handle_timeout(at);
    }
    let begun = |node: &Node| node.groups.values().filter(|it| it.stage == Stage::In).count();
    assert_eq!(begun(&node), 0, "before the membership is settled");
    node.handle_timeout(SETTLED_AT);
    assert_eq!((begun(&node), node.seeking.len()), (groups as usize, 0));
    let (late, profile) = ("joined later", Profile::Ordered(Quorum::Majority));
    let group = node.join(SETTLED_AT, late, profile).expect("the group is new");
    assert_eq!(node.groups[&group].stage, Stage::In);
    questions.load(Ordering::Relaxed)
}

#[test]
fn joining_ordered_groups_costs_the_same_for_each() {
    for is_by_group in [false, true] {
        let (few, many) = (questions(50, is_by_group), questions(500, is_by_group));
        assert!(many <= 10 * few, "{few} questions for 50 groups, {many} for 500");
    }
}

#[test]
fn a_group_whose_join_was_refused_is_not_kept() {
    let questions = Arc::default();
    let (accepts, is_settled, is_by_group) = (false, false, false);
    let mut node = node(Slow { accepts, is_settled, is_by_group, joined: Vec::new(), questions });
    let refused = node.join(Time(0), "refused", Profile::Ordered(Quorum::Majority));
    assert_eq!(refused, Err(JoinError::TooManyGroups { limit: 0 }));
    assert_eq!((node.groups.len(), node.seeking.len()), (0, 0));
}

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use carom_proto::node::Node;
use carom_proto::{GroupId, Time};

use crate::shared::commands::ReplySender;
use crate::shared::error::JoinGroupError;
use crate::shared::group::GroupParts;

/// A join that waits until the node has settled, so that conflicts with members are reported.
#[derive(Debug)]
pub(crate) struct PendingJoin {
    pub(crate) group: GroupId,
    parts: GroupParts,
    deadline: Time,
    reply: ReplySender<Result<GroupParts, JoinGroupError>>,
}

/// The pending joins. They are examined only after a change or a deadline, because there may be
/// thousands.
#[derive(Debug, Default)]
pub(crate) struct PendingJoins {
    by_group: BTreeMap<GroupId, PendingJoin>,
    by_deadline: BTreeSet<(Time, GroupId)>,
    changed: BTreeSet<GroupId>,
    last_answer: Option<Time>,
    admitted: BTreeSet<GroupId>,
    seeds: Vec<String>,
    registries: Vec<String>,
    has_met_any_node: bool,
}

impl PendingJoin {
    pub(crate) fn refuse(self, error: JoinGroupError) {
        self.reply.send_if_wanted(Err(error));
    }

    pub(crate) fn succeed(self) -> Result<(), GroupParts> {
        self.reply.send(Ok(self.parts)).or_else(|unwanted| unwanted.map_or(Ok(()), Err))
    }
}

impl PendingJoins {
    pub(crate) fn new(seeds: Vec<String>, registries: Vec<String>) -> Self {
        Self { seeds, registries, ..Self::default() }
    }

    pub(crate) fn insert(
        &mut self,
        now: Time,
        group: GroupId,
        parts: GroupParts,
        reply: ReplySender<Result<GroupParts, JoinGroupError>>,
    ) {
        let wait = match (self.registries.is_empty(), self.seeds.is_empty()) {
            (false, _) => SERVICE_WAIT,
            (true, false) => SEED_WAIT,
            (true, true) => JOIN_WAIT,
        };
        let deadline = now + wait;
        self.by_deadline.insert((deadline, group));
        self.changed.insert(group);
        let previous = self.by_group.insert(group, PendingJoin { group, parts, deadline, reply });
        debug_assert!(previous.is_none(), "{group} is already being joined");
    }

    pub(crate) fn remove(&mut self, group: GroupId) -> Option<PendingJoin> {
        let join = self.by_group.remove(&group)?;
        self.by_deadline.remove(&(join.deadline, group));
        self.changed.remove(&group);
        self.admitted.remove(&group);
        Some(join)
    }

    pub(crate) fn admit(&mut self, now: Time, group: GroupId) {
        self.last_answer = Some(now);
        if self.by_group.contains_key(&group) {
            self.changed.insert(group);
            self.admitted.insert(group);
            self.set_deadline(group, now + JOIN_WAIT);
        }
    }

    pub(crate) fn note_change(&mut self, group: GroupId) {
        if self.by_group.contains_key(&group) {
            self.changed.insert(group);
        }
    }

    pub(crate) fn note_change_of_all(&mut self) {
        self.changed.extend(self.by_group.keys());
    }

    pub(crate) fn on_met(&mut self) {
        if !std::mem::replace(&mut self.has_met_any_node, true) {
            self.note_change_of_all();
        }
    }

    pub(crate) fn pop_completed(&mut self, node: &Node) -> Option<PendingJoin> {
        while let Some(group) = self.changed.pop_first() {
            let has_joined = !self.is_alone() && node.has_joined(group);
            if has_joined && let Some(join) = self.remove(group) {
                return Some(join);
            }
        }
        None
    }

    /// Removes a join whose deadline has passed. While the registry answers other joins, the
    /// deadline is extended.
    pub(crate) fn pop_late(&mut self, now: Time) -> Option<PendingJoin> {
        loop {
            let &(deadline, group) = self.by_deadline.first()?;
            if deadline > now {
                return None;
            }
            match self.last_answer.map(|at| at + SERVICE_WAIT) {
                Some(later) if later > now && !self.admitted.contains(&group) => {
                    self.set_deadline(group, later);
                }
                _ => return self.remove(group),
            }
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.by_deadline.first().map(|(deadline, _)| *deadline)
    }

    /// Returns the error of a late join. A missing ring is not an error: it may lack its quorum.
    pub(crate) fn unanswered(&self, node: &Node, group: GroupId) -> Option<JoinGroupError> {
        if !self.registries.is_empty() {
            let addresses = self.registries.clone();
            let away =
                || JoinGroupError::ServiceAway { addresses, why: node.membership().trouble() };
            return (!node.is_admitted(group)).then(away);
        }
        self.is_alone().then(|| JoinGroupError::NoSeedAnswered { seeds: self.seeds.clone() })
    }

    fn is_alone(&self) -> bool {
        !self.seeds.is_empty() && !self.has_met_any_node
    }

    fn set_deadline(&mut self, group: GroupId, deadline: Time) {
        let Some(join) = self.by_group.get_mut(&group) else { return };
        let previous = std::mem::replace(&mut join.deadline, deadline);
        self.by_deadline.remove(&(previous, group));
        self.by_deadline.insert((deadline, group));
    }
}

pub(crate) const JOIN_WAIT: Duration = Duration::from_secs(2);
const SEED_WAIT: Duration = Duration::from_secs(3);
/// Maximum wait since the last answer of the registry, so that many groups can join at once.
const SERVICE_WAIT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;
    use carom_proto::membership::static_list::StaticMembership;
    use carom_proto::{NodeId, Profile, RateOfFire, lateral};

    #[test]
    fn join_admitted_by_the_registry_needs_no_answer_of_a_seed() {
        let membership = Box::new(StaticMembership::new(NodeId(1), []));
        let mut node = Node::new(NodeId(1), lateral::Config::default(), membership, 7);
        let profile = Profile::TimeCritical(RateOfFire::default());
        let group = node.join(Time(0), "first", profile).expect("the group is new");
        let seeds = || vec!["10.0.0.1".to_owned()];
        let with_registry = PendingJoins::new(seeds(), vec!["10.0.0.2".to_owned()]);
        assert!(with_registry.unanswered(&node, group).is_none());
        let error = PendingJoins::new(seeds(), Vec::new()).unanswered(&node, group);
        assert!(matches!(error, Some(JoinGroupError::NoSeedAnswered { .. })), "{error:?}");
    }
}

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use carom_proto::membership::{Membership, MembershipEvent};
use carom_proto::{
    Endpoint, GroupId, GroupSettings, JoinError, NodeId, Time, ViewChange, ViewChangeKind, Wakeup,
};

use crate::sim::report::Report;

/// The queues between the world and one node: `news` to the node, and `reports` to the world.
#[derive(Debug, Default)]
pub(crate) struct OracleLink {
    pub(crate) news: VecDeque<News>,
    pub(crate) reports: VecDeque<Report>,
}

/// A report of the world to a node. `stay` counts the receiver's joins of the group; news for an
/// earlier stay is ignored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum News {
    Joined { group: GroupId, stay: u32, node: NodeId, endpoint: Endpoint },
    Left { group: GroupId, stay: u32, node: NodeId },
    Gone { node: NodeId },
    Refused { group: GroupId, stay: u32, error: JoinError },
}

pub(crate) struct OracleProvider {
    oracle: Arc<Mutex<OracleLink>>,
    groups: BTreeMap<GroupId, Group>,
    stays: BTreeMap<GroupId, u32>,
    met: BTreeMap<NodeId, Endpoint>,
    events: VecDeque<MembershipEvent>,
    news: u64,
}

struct Group {
    name_check: u32,
    members: BTreeSet<NodeId>,
    version: u32,
}

impl OracleLink {
    pub(crate) fn lock(oracle: &Mutex<Self>) -> MutexGuard<'_, Self> {
        oracle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OracleProvider {
    pub(crate) fn new(oracle: Arc<Mutex<OracleLink>>) -> Self {
        Self {
            oracle,
            groups: BTreeMap::new(),
            stays: BTreeMap::new(),
            met: BTreeMap::new(),
            events: VecDeque::from([MembershipEvent::Settled]),
            news: 0,
        }
    }

    fn report(&self, report: Report) {
        OracleLink::lock(&self.oracle).reports.push_back(report);
    }

    fn on_news(&mut self, news: News) {
        self.news += 1;
        match news {
            News::Joined { group, stay, node, endpoint } if self.is_meant(group, stay) => {
                if self.met.insert(node, endpoint) != Some(endpoint) {
                    self.events.push_back(MembershipEvent::Met(node, endpoint));
                }
                self.change(group, node, ViewChangeKind::Joined);
            }
            News::Left { group, stay, node } if self.is_meant(group, stay) => {
                self.change(group, node, ViewChangeKind::Left);
            }
            News::Gone { node } => {
                let groups: Vec<GroupId> = self.groups.keys().copied().collect();
                for group in groups {
                    self.change(group, node, ViewChangeKind::Failed);
                }
                if self.met.remove(&node).is_some() {
                    self.events.push_back(MembershipEvent::Parted(node));
                }
            }
            News::Refused { group, stay, error } if self.is_meant(group, stay) => {
                self.groups.remove(&group);
                self.events.push_back(MembershipEvent::Refused(group, error));
            }
            News::Joined { .. } | News::Left { .. } | News::Refused { .. } => {}
        }
    }

    fn is_meant(&self, group: GroupId, stay: u32) -> bool {
        self.groups.contains_key(&group) && self.stays.get(&group) == Some(&stay)
    }

    fn change(&mut self, id: GroupId, node: NodeId, kind: ViewChangeKind) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        let has_changed = match kind {
            ViewChangeKind::Joined => group.members.insert(node),
            ViewChangeKind::Left | ViewChangeKind::Failed => group.members.remove(&node),
        };
        if has_changed {
            group.version += 1;
            let change = ViewChange { group: id, node, kind, version: group.version };
            self.events.push_back(MembershipEvent::View(change));
        }
    }
}

impl Membership for OracleProvider {
    fn join(
        &mut self,
        _now: Time,
        group: GroupId,
        settings: GroupSettings,
    ) -> Result<(), JoinError> {
        if let Some(existing) = self.groups.get(&group) {
            let is_same = existing.name_check == settings.name_check;
            return Err(if is_same { JoinError::AlreadyJoined } else { JoinError::NameCollision });
        }
        let (name_check, members) = (settings.name_check, BTreeSet::new());
        self.groups.insert(group, Group { name_check, members, version: 0 });
        let stay = self.stays.entry(group).or_default();
        *stay += 1;
        let report = Report::Joined(group, settings, *stay);
        self.report(report);
        Ok(())
    }

    fn leave(&mut self, _now: Time, group: GroupId) {
        if self.groups.remove(&group).is_some() {
            self.report(Report::Left(group));
        }
    }

    fn shut_down(&mut self, now: Time) {
        let groups: Vec<GroupId> = self.groups.keys().copied().collect();
        for group in groups {
            self.leave(now, group);
        }
    }

    fn handle_timeout(&mut self, _now: Time) {
        loop {
            let Some(news) = OracleLink::lock(&self.oracle).news.pop_front() else { break };
            self.on_news(news);
        }
    }

    fn poll_event(&mut self) -> Option<MembershipEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Wakeup> {
        let is_due = !self.events.is_empty() || !OracleLink::lock(&self.oracle).news.is_empty();
        is_due.then_some(Wakeup { at: Time::ZERO, reason: "news of the oracle" })
    }

    fn nodes(&self) -> Vec<(NodeId, Endpoint)> {
        self.met.iter().map(|(node, endpoint)| (*node, *endpoint)).collect()
    }

    fn is_settled(&self) -> bool {
        true
    }

    fn stats(&self) -> Vec<(&'static str, u64)> {
        vec![("news_heard", self.news)]
    }

    fn check(&self) {
        for group in self.groups.values() {
            let all_met = group.members.iter().all(|node| self.met.contains_key(node));
            assert!(all_met, "a member is known by its address");
        }
    }
}

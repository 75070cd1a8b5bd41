//! Installation of multicast trees in the network (2.3), by a command that the driver runs.
//!
//! For each group, one command runs at a time. While it runs, or waits for its turn, only the
//! newest tree is kept. A change is relative to the last tree that was installed.

use alloc::collections::{BTreeMap, BTreeSet};

use core::time::Duration;

use super::super::topology::{LinkId, Vertex};
use super::tree::MulticastTree;
use crate::{GroupId, NodeId, Time};

/// A multicast tree that the network is to carry, and its difference from the installed one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeChange {
    /// Group of the tree.
    pub group: GroupId,
    /// Number of the tree, above those of all earlier trees of this manager.
    pub version: u64,
    /// The sender, or `None` if the group is closed and its tree is to be removed.
    pub sender: Option<TreeMember>,
    /// The receivers, without those that are gone.
    pub receivers: Vec<TreeMember>,
    /// All links of the tree.
    pub links: Vec<TreeLink>,
    /// Links that the last installed tree does not have.
    pub added: Vec<TreeLink>,
    /// Links that only the last installed tree has.
    pub removed: Vec<TreeLink>,
}

/// A node in a multicast tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeMember {
    /// Id of the node.
    pub node: NodeId,
    /// Host of the node.
    pub host: Vertex,
}

/// A link of a multicast tree, in the direction of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TreeLink {
    /// End that is nearer to the sender.
    pub from: Vertex,
    /// End that is nearer to the receivers.
    pub to: Vertex,
    /// Link in the topology.
    pub link: LinkId,
}

/// State of the installation of a group's tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Installation<'a> {
    /// Group of the tree.
    pub group: GroupId,
    /// Number of the newest tree.
    pub version: u64,
    /// Number of the installed tree, or `None` if none was installed.
    pub installed: Option<u64>,
    /// `true` while a command runs.
    pub is_running: bool,
    /// Number of commands that failed.
    pub failures: u64,
    /// Reason of the last failure, or `None` if the last command succeeded.
    pub error: Option<&'a str>,
}

#[derive(Debug, Default)]
pub(super) struct TreeInstaller {
    groups: BTreeMap<GroupId, Entry>,
    versions: u64,
}

#[derive(Debug, Default)]
struct Entry {
    /// The newest tree, or `None` if this process no longer decides about the group.
    wanted: Option<Tree>,
    installed: Option<(u64, BTreeSet<TreeLink>)>,
    running: Option<(u64, BTreeSet<TreeLink>)>,
    not_before: Time,
    failures: u64,
    error: Option<String>,
}

#[derive(Debug, Default)]
struct Tree {
    version: u64,
    sender: Option<TreeMember>,
    receivers: Vec<TreeMember>,
    links: BTreeSet<TreeLink>,
}

/// Time after which a failed command is repeated, unless the tree changes before.
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// Time after which the tree of a closed group is removed. A sender that has only lost its
/// connection opens the group again before, and multicasts in the meantime.
const REMOVE_AFTER: Duration = Duration::from_secs(30);
/// Maximum number of commands that run at the same time.
const MAX_RUNNING: usize = 8;
/// Maximum number of groups. The trees of further closed groups stay installed.
const MAX_ENTRIES: usize = 8192;

impl TreeInstaller {
    pub(super) fn set(
        &mut self,
        now: Time,
        group: GroupId,
        sender: TreeMember,
        receivers: Vec<TreeMember>,
        tree: &MulticastTree,
    ) {
        let links = links_of(tree);
        let entry = self.groups.entry(group).or_default();
        let is_same = entry.wanted.as_ref().is_some_and(|it| {
            it.sender == Some(sender) && it.receivers == receivers && it.links == links
        });
        if !is_same {
            self.versions += 1;
            let version = self.versions;
            entry.wanted = Some(Tree { version, sender: Some(sender), receivers, links });
            entry.not_before = now;
        }
    }

    /// Removes the tree of a closed group after a while.
    pub(super) fn close(&mut self, now: Time, group: GroupId) {
        let is_full = self.groups.len() > MAX_ENTRIES;
        let Some(entry) = self.groups.get_mut(&group) else { return };
        if entry.running.is_none() && (entry.installed.is_none() || is_full) {
            self.groups.remove(&group);
            return;
        }
        self.versions += 1;
        entry.wanted = Some(Tree { version: self.versions, ..Tree::default() });
        entry.not_before = now + REMOVE_AFTER;
    }

    /// Forgets all trees without removing them: another process decides about the groups now.
    pub(super) fn give_up(&mut self) {
        self.groups.retain(|_, entry| entry.running.is_some());
        self.groups.values_mut().for_each(|entry| entry.wanted = None);
    }

    pub(super) fn poll(&mut self, now: Time) -> Option<TreeChange> {
        if self.running() >= MAX_RUNNING {
            return None;
        }
        let due = self.groups.iter_mut().filter(|(_, it)| it.is_pending() && it.not_before <= now);
        let (group, entry) = due.min_by_key(|(_, it)| it.version())?;
        let Entry { wanted: Some(tree), installed, .. } = entry else { return None };
        let none = BTreeSet::new();
        let before = installed.as_ref().map_or(&none, |(_, links)| links);
        let change = TreeChange {
            group: *group,
            version: tree.version,
            sender: tree.sender,
            receivers: tree.receivers.clone(),
            links: tree.links.iter().copied().collect(),
            added: tree.links.difference(before).copied().collect(),
            removed: before.difference(&tree.links).copied().collect(),
        };
        entry.running = Some((tree.version, tree.links.clone()));
        Some(change)
    }

    /// Processes the end of a group's command. Returns `true` if it was running.
    pub(super) fn on_result(
        &mut self,
        now: Time,
        group: GroupId,
        result: Result<(), String>,
    ) -> bool {
        let Some(entry) = self.groups.get_mut(&group) else { return false };
        let Some(ran) = entry.running.take() else { return false };
        match result {
            Ok(()) => {
                entry.installed = Some(ran);
                entry.error = None;
            }
            Err(error) => {
                entry.failures += 1;
                entry.error = Some(error);
                if entry.version() == ran.0 {
                    entry.not_before = now + RETRY_AFTER;
                }
            }
        }
        if entry.is_over() {
            self.groups.remove(&group);
        }
        true
    }

    /// Returns `true` while the newest tree of a group is being installed for the first time. The
    /// network may not carry it yet.
    pub(super) fn is_installing(&self, group: GroupId) -> bool {
        let entry = self.groups.get(&group).filter(|it| it.error.is_none());
        entry.is_some_and(|it| it.running.is_some() || it.is_pending())
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        let pending = self.groups.values().filter(|it| it.is_pending());
        pending.map(|it| it.not_before).min().filter(|_| self.running() < MAX_RUNNING)
    }

    pub(super) fn installations(&self) -> impl Iterator<Item = Installation<'_>> {
        self.groups.iter().map(|(group, entry)| Installation {
            group: *group,
            version: entry.version(),
            installed: entry.installed.as_ref().map(|(version, _)| *version),
            is_running: entry.running.is_some(),
            failures: entry.failures,
            error: entry.error.as_deref(),
        })
    }

    fn running(&self) -> usize {
        self.groups.values().filter(|it| it.running.is_some()).count()
    }
}

impl Entry {
    fn version(&self) -> u64 {
        self.wanted.as_ref().map_or(0, |tree| tree.version)
    }

    fn is_pending(&self) -> bool {
        let Some(tree) = self.wanted.as_ref().filter(|_| self.running.is_none()) else {
            return false;
        };
        match &self.installed {
            Some((version, _)) => *version != tree.version,
            // A tree without receivers changes nothing in the network.
            None => !tree.links.is_empty(),
        }
    }

    /// Returns `true` if nothing remains to be installed or removed for a group that is closed.
    fn is_over(&self) -> bool {
        match &self.wanted {
            None => true,
            Some(tree) => tree.sender.is_none() && !self.is_pending(),
        }
    }
}

fn links_of(tree: &MulticastTree) -> BTreeSet<TreeLink> {
    let link = |to: Vertex| {
        let above = tree.above(to)?;
        Some(TreeLink { from: above.vertex, to, link: above.link })
    };
    tree.upwards().into_iter().filter_map(link).collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::topology::Topology;
    use super::*;

    const A: GroupId = GroupId(1);
    const B: GroupId = GroupId(2);
    const NOW: Time = Time(1_000_000_000);

    struct Run(TreeInstaller);

    impl Run {
        fn set(&mut self, group: GroupId, receivers: &[u32]) {
            let topology = Topology::racks(&[2, 2, 2]).expect("racks");
            let receivers: BTreeSet<Vertex> = receivers.iter().copied().map(Vertex).collect();
            let (tree, _) =
                MulticastTree::shortest(&topology, &BTreeSet::new(), Vertex(0), &receivers);
            let member = |host: Vertex| TreeMember { node: NodeId(u64::from(host.0) + 1), host };
            let receivers = receivers.into_iter().map(member).collect();
            self.0.set(NOW, group, member(Vertex(0)), receivers, &tree);
        }

        fn end(&mut self, group: GroupId, result: Result<(), &str>) {
            assert!(self.0.on_result(NOW, group, result.map_err(str::to_owned)));
        }

        /// Returns the counts of all, of added, and of removed links.
        fn poll_at(&mut self, now: Time) -> Option<(GroupId, [usize; 3])> {
            let change = self.0.poll(now)?;
            let lists = [&change.links, &change.added, &change.removed];
            Some((change.group, lists.map(Vec::len)))
        }

        fn poll(&mut self) -> Option<(GroupId, [usize; 3])> {
            self.poll_at(NOW)
        }
    }

    #[test]
    fn newest_tree_follows_a_slow_command_of_its_group() {
        let mut run = Run(TreeInstaller::default());
        run.set(A, &[2]);
        assert_eq!(run.poll(), Some((A, [4, 4, 0])));
        run.set(A, &[2, 3]);
        run.set(A, &[4]);
        run.set(B, &[1]);
        assert_eq!(run.poll(), Some((B, [2, 2, 0])), "another group does not wait");
        assert_eq!(run.poll(), None);
        run.end(A, Ok(()));
        assert_eq!(run.poll(), Some((A, [4, 2, 2])), "the tree in between is never installed");
        run.end(A, Ok(()));
        run.set(A, &[4]);
        assert_eq!((run.poll(), run.0.poll_timeout()), (None, None), "nothing has changed");
    }

    #[test]
    fn failed_command_is_repeated_later_or_with_a_newer_tree() {
        let mut run = Run(TreeInstaller::default());
        run.set(A, &[2]);
        run.poll();
        run.end(A, Err("no such switch"));
        assert_eq!((run.poll(), run.0.poll_timeout()), (None, Some(NOW + RETRY_AFTER)));
        assert_eq!(run.poll_at(NOW + RETRY_AFTER), Some((A, [4, 4, 0])));
        run.end(A, Err("no such switch"));
        run.set(A, &[4]);
        assert_eq!(run.poll(), Some((A, [4, 4, 0])), "relative to what was installed");
        let installation = run.0.installations().next().expect("a group");
        assert_eq!((installation.failures, installation.error), (2, Some("no such switch")));
        assert!(installation.is_running && installation.installed.is_none());
        run.end(A, Ok(()));
        assert_eq!(run.0.installations().next().and_then(|it| it.error), None);
    }

    #[test]
    fn tree_of_a_closed_group_is_removed_unless_it_opens_again() {
        let mut run = Run(TreeInstaller::default());
        run.set(A, &[2]);
        run.poll();
        run.end(A, Ok(()));
        run.0.close(NOW, A);
        assert_eq!((run.poll(), run.0.poll_timeout()), (None, Some(NOW + REMOVE_AFTER)));
        run.set(A, &[2]);
        assert_eq!(run.poll(), Some((A, [4, 0, 0])), "it is the same tree under a new version");
        run.end(A, Ok(()));
        run.0.close(NOW, A);
        assert_eq!(run.poll_at(NOW + REMOVE_AFTER), Some((A, [0, 0, 4])));
        run.end(A, Ok(()));
        assert_eq!(run.0.installations().count(), 0);
    }

    #[test]
    fn process_that_gives_up_removes_no_tree() {
        let mut run = Run(TreeInstaller::default());
        run.set(A, &[2]);
        run.set(B, &[2]);
        run.poll();
        run.end(A, Ok(()));
        run.poll();
        run.0.give_up();
        assert_eq!(run.poll_at(NOW + REMOVE_AFTER), None);
        run.set(B, &[4]);
        assert_eq!(run.poll(), None, "the command of its former tree still runs");
        run.end(B, Ok(()));
        assert_eq!(run.poll(), Some((B, [4, 2, 2])));
    }

    #[test]
    fn commands_of_few_groups_run_at_the_same_time() {
        let mut run = Run(TreeInstaller::default());
        (1..20).for_each(|group| run.set(GroupId(group), &[2]));
        let started = core::iter::from_fn(|| run.poll()).count();
        assert_eq!((started, run.0.poll_timeout()), (MAX_RUNNING, None));
        run.end(A, Ok(()));
        assert_eq!(core::iter::from_fn(|| run.poll()).count(), 1);
    }
}

//! Installation of multicast trees in the network (2.3), by a command that the driver runs.
//!
//! For each group, one command runs at a time. While it runs, or waits for its turn, only the
//! newest tree is kept. A change is relative to the last tree that was installed, and also removes
//! what commands that have failed since may have installed.

use alloc::collections::{BTreeMap, BTreeSet};

use core::time::Duration;

use super::super::topology::{LinkId, Vertex};
use super::tree::MulticastTree;
use crate::{GroupId, NodeId, Time, Timers};

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
    /// Links that only the last installed tree has, or a tree whose installation has failed since.
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
    /// `true` if a command has failed since the last one that succeeded. The network may have parts
    /// of several trees.
    pub is_dirty: bool,
}

#[derive(Debug, Default)]
pub(super) struct TreeInstaller {
    groups: BTreeMap<GroupId, Entry>,
    versions: u64,
    /// Groups whose trees are to be installed or removed, and have no running command.
    due: Timers<GroupId>,
    running: usize,
}

#[derive(Debug, Default)]
struct Entry {
    /// The newest tree, or `None` if this process no longer decides about the group.
    wanted: Option<Tree>,
    /// The last installed tree, with the time since which the network has carried each link.
    installed: Option<(u64, BTreeMap<TreeLink, Time>)>,
    running: Option<(u64, BTreeSet<TreeLink>)>,
    /// Links that commands may have installed that failed after the last success, if there are any
    /// such commands.
    dirty: Option<BTreeSet<TreeLink>>,
    /// Earliest time of the next command.
    not_before: Time,
    failures: u64,
    /// Number of the last tree that was not installed, and the reason.
    failed: Option<(u64, String)>,
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
/// Time for which the receivers of a new tree are gathered. Those that are online when the sender
/// begins join by several requests.
const GATHER_FOR: Duration = Duration::from_millis(100);
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
        if is_same {
            return;
        }
        if !entry.is_gathered() {
            let is_first = !entry.is_installed() && entry.running.is_none();
            let gathers = is_first || entry.is_closed();
            entry.not_before = if gathers { now + GATHER_FOR } else { now };
        }
        self.versions += 1;
        let version = self.versions;
        entry.wanted = Some(Tree { version, sender: Some(sender), receivers, links });
        self.schedule(group);
    }

    /// Removes the tree of a closed group after a while.
    pub(super) fn close(&mut self, now: Time, group: GroupId) {
        let is_full = self.groups.len() > MAX_ENTRIES;
        let open = self.groups.get_mut(&group).filter(|entry| !entry.is_closed());
        let Some(entry) = open else { return };
        if entry.running.is_none() && (!entry.is_installed() || is_full) {
            self.remove(group);
            return;
        }
        self.versions += 1;
        entry.wanted = Some(Tree { version: self.versions, ..Tree::default() });
        entry.not_before = now + REMOVE_AFTER;
        self.schedule(group);
    }

    /// Forgets all trees without removing them: another process decides about the groups now.
    pub(super) fn give_up(&mut self) {
        self.groups.retain(|_, entry| entry.running.is_some());
        self.groups.values_mut().for_each(|entry| entry.wanted = None);
        self.due = Timers::new();
    }

    pub(super) fn poll(&mut self, now: Time) -> Option<TreeChange> {
        if self.running >= MAX_RUNNING {
            return None;
        }
        let group = self.due.pop_due(now)?;
        let entry = self.groups.get_mut(&group).expect("a group that is due has an entry");
        let tree = entry.wanted.as_ref().expect("a group that is due has a tree");
        let before = entry.before();
        let change = TreeChange {
            group,
            version: tree.version,
            sender: tree.sender,
            receivers: tree.receivers.clone(),
            links: tree.links.iter().copied().collect(),
            added: tree.links.iter().filter(|link| !entry.has_installed(link)).copied().collect(),
            removed: before.difference(&tree.links).copied().collect(),
        };
        entry.running = Some((tree.version, tree.links.clone()));
        self.running += 1;
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
        let Some((version, links)) = entry.running.take() else { return false };
        self.running -= 1;
        match result {
            Ok(()) => entry.on_installed(now, version, links),
            Err(error) => {
                entry.failures += 1;
                entry.failed = Some((version, error));
                entry.dirty.get_or_insert_default().extend(links);
                if entry.version() == version {
                    entry.not_before = now + RETRY_AFTER;
                }
            }
        }
        if entry.is_over() {
            self.remove(group);
        } else {
            self.schedule(group);
        }
        true
    }

    fn remove(&mut self, group: GroupId) {
        self.groups.remove(&group);
        self.due.cancel(group);
    }

    fn schedule(&mut self, group: GroupId) {
        match self.groups.get(&group).filter(|entry| entry.is_pending()) {
            Some(entry) => self.due.set(group, entry.not_before),
            None => {
                self.due.cancel(group);
            }
        }
    }

    /// Returns `true` if the network may not have carried some of `links` for the time `settle`,
    /// because they are being installed. After a failure, this cannot explain losses.
    pub(super) fn is_installing(
        &self,
        now: Time,
        group: GroupId,
        links: &[TreeLink],
        settle: Duration,
    ) -> bool {
        let Some(entry) = self.groups.get(&group) else { return false };
        let carries = |link: &TreeLink| {
            let installed = entry.installed.as_ref().and_then(|(_, links)| links.get(link));
            // The running command removes the links that its tree does not have.
            let is_kept = entry.running.as_ref().is_none_or(|(_, links)| links.contains(link));
            entry.dirty.is_none() && is_kept && installed.is_some_and(|it| *it + settle <= now)
        };
        !entry.has_failed() && !links.iter().all(carries)
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.due.next_due().filter(|_| self.running < MAX_RUNNING)
    }

    pub(super) fn installations(&self) -> impl Iterator<Item = Installation<'_>> {
        self.groups.iter().map(|(group, entry)| Installation {
            group: *group,
            version: entry.version(),
            installed: entry.installed.as_ref().map(|(version, _)| *version),
            is_running: entry.running.is_some(),
            failures: entry.failures,
            error: entry.failed.as_ref().map(|(_, error)| error.as_str()),
            is_dirty: entry.dirty.is_some(),
        })
    }
}

impl Entry {
    fn version(&self) -> u64 {
        self.wanted.as_ref().map_or(0, |tree| tree.version)
    }

    fn is_closed(&self) -> bool {
        self.wanted.as_ref().is_some_and(|tree| tree.sender.is_none())
    }

    /// Returns `true` if the tree waits for more receivers or for its turn, and not for another
    /// attempt. Further receivers do not delay it.
    fn is_gathered(&self) -> bool {
        self.is_pending() && !self.is_closed() && !self.has_failed()
    }

    fn has_failed(&self) -> bool {
        self.failed.as_ref().is_some_and(|(version, _)| *version == self.version())
    }

    fn is_pending(&self) -> bool {
        let Some(tree) = self.wanted.as_ref().filter(|_| self.running.is_none()) else {
            return false;
        };
        match &self.installed {
            Some((version, _)) => *version != tree.version,
            // A tree without receivers changes nothing in the network.
            None => !tree.links.is_empty() || self.dirty.is_some(),
        }
    }

    /// Returns `true` if nothing remains to be installed or removed for a group that is closed.
    fn is_over(&self) -> bool {
        self.wanted.is_none() || self.is_closed() && !self.is_pending()
    }

    /// Returns `true` if the network may have a tree of the group.
    fn is_installed(&self) -> bool {
        self.installed.is_some() || self.dirty.is_some()
    }

    fn has_installed(&self, link: &TreeLink) -> bool {
        self.installed.as_ref().is_some_and(|(_, links)| links.contains_key(link))
    }

    /// Returns all links that the network may have.
    fn before(&self) -> BTreeSet<TreeLink> {
        let installed = self.installed.iter().flat_map(|(_, links)| links.keys());
        installed.chain(self.dirty.iter().flatten()).copied().collect()
    }

    fn on_installed(&mut self, now: Time, version: u64, links: BTreeSet<TreeLink>) {
        let is_dirty = self.dirty.take().is_some();
        self.failed = None;
        let before = self.installed.take().filter(|_| !is_dirty);
        let before = before.map_or_else(BTreeMap::new, |(_, links)| links);
        let since = |link: TreeLink| (link, before.get(&link).copied().unwrap_or(now));
        self.installed = Some((version, links.into_iter().map(since).collect()));
    }
}

pub(super) fn links_of(tree: &MulticastTree) -> BTreeSet<TreeLink> {
    let link = |to: Vertex| {
        let above = tree.above(to)?;
        Some(TreeLink { from: above.vertex, to, link: above.link })
    };
    tree.upwards().into_iter().filter_map(link).collect()
}

#[cfg(test)]
#[path = "installer_tests.rs"]
mod tests;

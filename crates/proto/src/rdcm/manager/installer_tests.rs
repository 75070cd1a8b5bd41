use super::*;
use crate::rdcm::topology::Topology;

const A: GroupId = GroupId(1);
const B: GroupId = GroupId(2);
const NOW: Time = Time(1_000_000_000);

struct Run(TreeInstaller);

/// Time at which the first tree of each group is due.
const GATHERED: Time = Time(1_100_000_000);
const SETTLE: Duration = Duration::from_millis(400);

impl Run {
    fn set(&mut self, group: GroupId, receivers: &[u32]) {
        self.set_at(NOW, group, receivers);
    }

    fn set_at(&mut self, now: Time, group: GroupId, receivers: &[u32]) {
        let topology = Topology::racks(&[2, 2, 2]).expect("racks");
        let receivers: BTreeSet<Vertex> = receivers.iter().copied().map(Vertex).collect();
        let (tree, _) = MulticastTree::shortest(&topology, &BTreeSet::new(), Vertex(0), &receivers);
        let member = |host: Vertex| TreeMember { node: NodeId(u64::from(host.0) + 1), host };
        let receivers = receivers.into_iter().map(member).collect();
        self.0.set(now, group, member(Vertex(0)), receivers, &tree);
    }

    fn end(&mut self, group: GroupId, result: Result<(), &str>) {
        assert!(self.0.on_result(GATHERED, group, result.map_err(str::to_owned)));
    }

    /// Returns the counts of all, of added, and of removed links.
    fn poll_at(&mut self, now: Time) -> Option<(GroupId, [usize; 3])> {
        let change = self.0.poll(now)?;
        let lists = [&change.links, &change.added, &change.removed];
        Some((change.group, lists.map(Vec::len)))
    }

    fn poll(&mut self) -> Option<(GroupId, [usize; 3])> {
        self.poll_at(GATHERED)
    }

    /// Returns `true` if a report on the path to receiver 4 is ignored.
    fn ignores_cut_at(&self, now: Time) -> bool {
        let all = self.0.groups[&A].wanted.as_ref().expect("a tree").links.clone();
        let below: Vec<TreeLink> = all.into_iter().filter(|it| it.to == Vertex(4)).collect();
        assert_eq!(below.len(), 1, "{below:?}");
        self.0.is_installing(now, A, &below, SETTLE)
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
    assert_eq!((run.poll(), run.0.poll_timeout()), (None, Some(GATHERED + RETRY_AFTER)));
    assert_eq!(run.poll_at(GATHERED + RETRY_AFTER), Some((A, [4, 4, 0])));
    run.end(A, Err("no such switch"));
    run.set(A, &[4]);
    assert_eq!(run.poll(), Some((A, [4, 4, 2])), "the failed command may have installed two links");
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

#[test]
fn tree_that_waits_for_its_turn_is_not_postponed_by_receivers() {
    let mut run = Run(TreeInstaller::default());
    let last = MAX_RUNNING as u32 + 1;
    (1..=last).for_each(|group| run.set(GroupId(group), &[2]));
    assert_eq!(core::iter::from_fn(|| run.poll()).count(), MAX_RUNNING);
    run.set_at(GATHERED, GroupId(last), &[2, 3]);
    run.end(A, Ok(()));
    assert_eq!(run.poll().map(|it| it.0), Some(GroupId(last)));
}

#[test]
fn first_tree_waits_for_the_receivers_of_that_moment() {
    let mut run = Run(TreeInstaller::default());
    run.set(A, &[2]);
    assert_eq!((run.poll_at(NOW), run.0.poll_timeout()), (None, Some(GATHERED)));
    run.set_at(NOW + GATHER_FOR / 2, A, &[2, 3, 4]);
    assert_eq!(run.0.poll_timeout(), Some(GATHERED), "more receivers do not delay it");
    assert_eq!(run.poll(), Some((A, [7, 7, 0])));
    run.end(A, Ok(()));
    run.set_at(GATHERED, A, &[2, 3]);
    assert_eq!(run.poll().map(|it| it.1), Some([5, 0, 2]), "an installed tree changes at once");
}

#[test]
fn partly_installed_tree_of_a_closed_group_is_removed() {
    let mut run = Run(TreeInstaller::default());
    run.set(A, &[2]);
    run.poll();
    run.end(A, Err("the second switch is away"));
    assert!(run.0.installations().all(|it| it.is_dirty && it.installed.is_none()));
    run.0.close(GATHERED, A);
    assert_eq!(run.poll_at(GATHERED + REMOVE_AFTER), Some((A, [0, 0, 4])));
    run.end(A, Err("the second switch is away"));
    assert_eq!(run.poll_at(GATHERED + RETRY_AFTER), Some((A, [0, 0, 4])), "until it succeeds");
    run.end(A, Ok(()));
    assert_eq!(run.0.installations().count(), 0);
}

#[test]
fn tree_after_a_failure_also_removes_the_failed_one() {
    let mut run = Run(TreeInstaller::default());
    run.set(A, &[2]);
    run.poll();
    run.end(A, Ok(()));
    run.set(A, &[4]);
    assert_eq!(run.poll(), Some((A, [4, 2, 2])));
    run.end(A, Err("no such switch"));
    run.set(A, &[2]);
    assert_eq!(run.poll(), Some((A, [4, 0, 2])));
    run.end(A, Ok(()));
    assert!(run.0.installations().all(|it| !it.is_dirty && it.error.is_none()));
}

#[test]
fn cuts_are_ignored_only_on_links_that_are_not_installed() {
    let mut run = Run(TreeInstaller::default());
    run.set(A, &[4]);
    assert!(run.ignores_cut_at(NOW), "the command has not started");
    run.poll();
    assert!(run.ignores_cut_at(GATHERED), "the command runs");
    run.end(A, Ok(()));
    assert!(run.ignores_cut_at(GATHERED), "receivers have just begun to observe the tree");
    let later = GATHERED + SETTLE;
    assert!(!run.ignores_cut_at(later));
    run.set_at(later, A, &[2, 4]);
    assert!(!run.ignores_cut_at(later), "the network has carried the link for long");
    assert!(run.poll_at(later).is_some());
    assert!(!run.ignores_cut_at(later), "the command changes other links");
    assert!(run.0.on_result(later, A, Ok(())));
    assert!(!run.ignores_cut_at(later), "the link is not new");
}

#[test]
fn failure_lifts_the_protection_of_its_own_tree_only() {
    let mut run = Run(TreeInstaller::default());
    run.set(A, &[4]);
    run.poll();
    run.end(A, Err("no such switch"));
    assert!(!run.ignores_cut_at(GATHERED), "the network may never carry the tree");
    run.set(A, &[2, 4]);
    assert!(run.ignores_cut_at(GATHERED), "the newer tree has not failed");
    run.poll();
    assert!(run.ignores_cut_at(GATHERED));
}

//! What every membership provider must do, written once and run over each of them. A provider that
//! cannot do something says so in its [`Abilities`]; what it does instead is tested then.
//!
//! That nodes are met before they are in a view and part after they have left all of them, that
//! versions grow by one, that no change is told twice or tells nothing, and that a node settles
//! once, [`Net`] asserts of every event.

use std::collections::BTreeSet;
use std::time::Duration;

use carom_proto::membership::Membership;
use carom_proto::membership::gossip::Gossip;
use carom_proto::membership::static_list::StaticMembership;
use carom_proto::*;

use super::net::{Net, endpoint, node_id, settings, with_seeds};

/// A provider that is tested.
trait Subject {
    fn name(&self) -> &'static str;

    fn abilities(&self) -> Abilities;

    /// The provider of node `id` on `host`, one of the first [`HOSTS`] hosts.
    fn provider(&self, host: usize, id: NodeId, seed: u64) -> Box<dyn Membership>;
}

/// What a provider is able to do.
#[derive(Clone, Copy)]
struct Abilities {
    /// It tells of joins and leaves. Where it does not, all listed nodes are in all groups of a
    /// node for ever.
    tells_changes: bool,
    /// It tells of a crash within this time, if it does at all.
    detects_within: Option<Duration>,
    /// It compares the settings of a group's members.
    compares_settings: bool,
    /// Views are those of the members so long after the network has been put right, at the latest.
    agrees_within: Duration,
}

/// A list of all hosts, each with its first node.
struct Listed;

/// Gossip as it is by default, by host 0 as a seed.
struct Gossiped;

impl Subject for Listed {
    fn name(&self) -> &'static str {
        "static"
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            tells_changes: false,
            detects_within: None,
            compares_settings: false,
            agrees_within: Duration::ZERO,
        }
    }

    fn provider(&self, _host: usize, id: NodeId, _seed: u64) -> Box<dyn Membership> {
        let list = (0..HOSTS).map(|host| (node_id(host), endpoint(host)));
        Box::new(StaticMembership::new(id, list))
    }
}

impl Subject for Gossiped {
    fn name(&self) -> &'static str {
        "gossip"
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            tells_changes: true,
            detects_within: Some(Duration::from_secs(3)),
            compares_settings: true,
            agrees_within: Duration::from_secs(20),
        }
    }

    fn provider(&self, host: usize, id: NodeId, seed: u64) -> Box<dyn Membership> {
        Box::new(Gossip::new(id, endpoint(host), with_seeds(&[0]), seed))
    }
}

const SUBJECTS: [&dyn Subject; 2] = [&Listed, &Gossiped];
const HOSTS: usize = 8;
const GROUPS: [&str; 3] = ["all", "a", "b"];

/// Nodes under test, and who is in which group in truth.
struct Cluster<'a> {
    subject: &'a dyn Subject,
    net: Net,
    /// The groups of each host's node; `None` if it is down.
    truth: Vec<Option<BTreeSet<&'static str>>>,
    lives: usize,
    rng: Rng,
}

impl<'a> Cluster<'a> {
    /// All hosts are up, and in no group.
    fn new(subject: &'a dyn Subject, loss: f64, seed: u64) -> Self {
        let (net, rng) = (Net::new(loss, seed), Rng::new(seed ^ 0x5017e));
        let mut cluster = Self { subject, net, truth: Vec::new(), lives: HOSTS, rng };
        for host in 0..HOSTS {
            let seed = cluster.rng.next_u64();
            cluster.net.add_provider(subject.provider(host, node_id(host), seed));
            cluster.truth.push(Some(BTreeSet::new()));
        }
        cluster
    }

    /// All hosts are up, have settled, are in group "all", and agree.
    fn agreed(subject: &'a dyn Subject, loss: f64, seed: u64) -> Self {
        let mut cluster = Self::new(subject, loss, seed);
        cluster.net.run_for(SECOND);
        (0..HOSTS).for_each(|host| cluster.join(host, "all"));
        cluster.must_agree("at the start");
        cluster
    }

    fn id(&self, host: usize) -> NodeId {
        self.net.hosts[host].id
    }

    fn runs(&self, host: usize) -> bool {
        self.truth[host].is_some() && !self.net.hosts[host].paused
    }

    fn join(&mut self, host: usize, name: &'static str) {
        self.net.join(host, name).expect("all have the same settings");
        self.groups_mut(host).insert(name);
    }

    fn leave(&mut self, host: usize, name: &'static str) {
        self.net.leave(host, name);
        self.groups_mut(host).remove(name);
    }

    fn groups_mut(&mut self, host: usize) -> &mut BTreeSet<&'static str> {
        self.truth[host].as_mut().expect("the host is up")
    }

    fn crash(&mut self, host: usize) {
        self.net.hosts[host].crashed = true;
        self.truth[host] = None;
    }

    /// The node says that it stops, and does.
    fn stop(&mut self, host: usize) {
        self.net.shut_down(host);
        self.truth[host] = None;
    }

    /// A host that was down comes back with another node.
    fn restart(&mut self, host: usize) {
        let (id, seed) = (node_id(self.lives), self.rng.next_u64());
        self.lives += 1;
        self.net.replace(host, id, self.subject.provider(host, id, seed));
        self.truth[host] = Some(BTreeSet::new());
    }

    /// Whom the node on `host` must see in the group.
    fn expected(&self, host: usize, name: &str) -> BTreeSet<NodeId> {
        let is_in =
            |other: &usize| self.truth[*other].as_ref().is_some_and(|groups| groups.contains(name));
        let all: BTreeSet<NodeId> = if self.subject.abilities().tells_changes {
            (0..HOSTS).filter(is_in).map(|other| self.id(other)).collect()
        } else {
            (0..HOSTS).map(node_id).collect()
        };
        all.into_iter().filter(|id| *id != self.id(host)).collect()
    }

    /// Whom the node on `host` must have met: everybody who is up.
    fn expected_to_be_met(&self, host: usize) -> BTreeSet<NodeId> {
        let up = (0..HOSTS).filter(|other| self.truth[*other].is_some());
        let all: BTreeSet<NodeId> = if self.subject.abilities().tells_changes {
            up.map(|other| self.id(other)).collect()
        } else {
            (0..HOSTS).map(node_id).collect()
        };
        all.into_iter().filter(|id| *id != self.id(host)).collect()
    }

    /// The first node whose views are not what they must be.
    fn disagreement(&self) -> Option<String> {
        for (host, groups) in self.truth.iter().enumerate() {
            let Some(groups) = groups else { continue };
            for name in groups {
                let view = self.net.view(host, name).members();
                let seen: BTreeSet<NodeId> = view.iter().copied().collect();
                let expected = self.expected(host, name);
                if seen != expected {
                    return Some(format!("host {host}, {name}: {seen:?} and not {expected:?}"));
                }
            }
            let (met, expected) = (&self.net.hosts[host].met, self.expected_to_be_met(host));
            if *met != expected {
                return Some(format!("host {host} has met {met:?} and not {expected:?}"));
            }
        }
        None
    }

    fn must_agree(&mut self, when: &str) {
        let span = self.subject.abilities().agrees_within;
        self.must_agree_within(span, when);
    }

    fn must_agree_within(&mut self, span: Duration, when: &str) {
        let end = self.net.now + span;
        while let Some(what) = self.disagreement() {
            let name = self.subject.name();
            assert!(self.net.now < end, "{name}, {when}, {span:?} later: {what}");
            self.net.run_for(Duration::from_millis(20));
        }
        self.net.check();
    }

    /// What `observer` was told of `node` in group "all", in order.
    fn told(&self, observer: usize, node: NodeId) -> Vec<ViewChangeKind> {
        let group = GroupId::of_name("all");
        let of_node = |change: &&ViewChange| change.node == node && change.group == group;
        let changes = self.net.hosts[observer].changes.iter().map(|(_, change)| change);
        changes.filter(of_node).map(|change| change.kind).collect()
    }
}

#[test]
fn a_join_is_told_once_to_all_members_and_a_joiner_is_told_of_all_before_it() {
    for subject in SUBJECTS {
        for loss in [0.0, 0.05] {
            let mut cluster = Cluster::new(subject, loss, 1);
            cluster.net.run_for(SECOND);
            for host in 0..HOSTS {
                cluster.join(host, "all");
                cluster.must_agree("after a join");
            }
            for host in 0..HOSTS {
                let others = (0..HOSTS).filter(|other| *other != host).map(node_id);
                for other in others {
                    let told = cluster.told(host, other);
                    assert_eq!(told, [ViewChangeKind::Joined], "{}", subject.name());
                }
                assert!(cluster.net.hosts[host].settled_at.is_some(), "{}", subject.name());
            }
        }
    }
}

#[test]
fn who_leaves_or_stops_has_left_and_who_crashes_has_failed() {
    use ViewChangeKind::{Failed, Joined, Left};
    for subject in SUBJECTS {
        let abilities = subject.abilities();
        for seed in 0..4 {
            let mut cluster = Cluster::agreed(subject, 0.0, seed);
            let [leaves, stops, crashes] = [1, 2, 3].map(|host| cluster.id(host));
            cluster.leave(1, "all");
            cluster.stop(2);
            cluster.must_agree_within(SECOND, "after a leave and a stop");
            cluster.crash(3);
            let end = abilities.detects_within.unwrap_or_default();
            if abilities.tells_changes && abilities.detects_within.is_none() {
                panic!("{}: say what happens to nodes that crash", subject.name());
            }
            cluster.must_agree_within(end, "after a crash");
            cluster.net.run_for(10 * SECOND);
            for host in [0, 4, 5, 6, 7] {
                let told = [leaves, stops, crashes].map(|node| cluster.told(host, node));
                let expected = match abilities.tells_changes {
                    true => [vec![Joined, Left], vec![Joined, Left], vec![Joined, Failed]],
                    false => [(); 3].map(|()| vec![Joined]),
                };
                assert_eq!(told, expected, "{}, seed {seed}, host {host}", subject.name());
            }
        }
    }
}

#[test]
fn who_comes_back_is_a_new_member_and_sees_all_who_are_there() {
    use ViewChangeKind::{Failed, Joined, Left};
    for subject in SUBJECTS {
        for (seed, pause_ms) in [(1, 0), (2, 500), (3, 5000)] {
            let mut cluster = Cluster::agreed(subject, 0.01, seed);
            let before = cluster.id(5);
            cluster.crash(5);
            cluster.net.run_for(Duration::from_millis(pause_ms));
            cluster.restart(5);
            cluster.join(5, "all");
            cluster.must_agree("after the return");
            let (name, now) = (subject.name(), cluster.id(5));
            assert_ne!(before, now);
            for host in (0..HOSTS).filter(|host| *host != 5) {
                let told = [before, now].map(|node| cluster.told(host, node));
                if subject.abilities().tells_changes {
                    let gone = [[Joined, Failed], [Joined, Left]];
                    let is_gone = gone.iter().any(|gone| told[0] == gone);
                    assert!(is_gone && told[1] == [Joined], "{name}, host {host}: {told:?}");
                } else {
                    assert_eq!(told, [vec![Joined], vec![]], "{name} has a list for ever");
                }
            }
        }
    }
}

#[test]
fn contradicting_settings_are_refused_with_both_values() {
    for subject in SUBJECTS {
        let mut cluster = Cluster::agreed(subject, 0.0, 1);
        let name = subject.name();
        cluster.leave(1, "all");
        cluster.must_agree("after a leave");
        let ours = GroupSettings::new("all", Profile::TimeCritical(RateOfFire::new(8, 3)));
        let joined = cluster.net.join_with(1, "all", ours);
        if subject.abilities().compares_settings {
            let Err(JoinError::Contradiction { ours: told, theirs, by }) = joined else {
                panic!("{name}: {joined:?}");
            };
            assert_eq!((told, theirs), (ours, settings("all")), "{name}");
            assert!(cluster.expected(1, "all").contains(&by), "{name}: by {by}");
        } else {
            assert_eq!(joined, Ok(()), "{name} knows no settings but its own");
        }
        // What a node can tell by itself, every provider does.
        let (now, group) = (cluster.net.now, GroupId::of_name("all"));
        let membership = &mut cluster.net.hosts[0].membership;
        assert_eq!(membership.join(now, group, settings("all")), Err(JoinError::AlreadyJoined));
        let collision = GroupSettings { name_check: 1, ..settings("all") };
        assert_eq!(membership.join(now, group, collision), Err(JoinError::NameCollision));
    }
}

#[test]
fn a_group_that_was_left_can_be_joined_again_and_a_node_that_stopped_wants_nothing_more() {
    for subject in SUBJECTS {
        let mut cluster = Cluster::agreed(subject, 0.0, 1);
        for _ in 0..3 {
            cluster.leave(4, "all");
            cluster.join(4, "all");
        }
        cluster.must_agree("after leaving and joining");
        cluster.stop(4);
        let stopped = &cluster.net.hosts[4].membership;
        assert!(stopped.poll_timeout().is_none(), "{}", subject.name());
        cluster.must_agree("after the stop");
    }
}

#[test]
fn after_any_history_the_views_agree_with_the_truth() {
    for subject in SUBJECTS {
        for seed in 0..HISTORIES {
            let loss = [0.0, 0.01, 0.05, 0.2][seed as usize % 4];
            let mut cluster = Cluster::new(subject, loss, seed);
            let mut rng = Rng::new(seed ^ 0xac75);
            for _ in 0..20 + rng.below(40) {
                something_happens(&mut cluster, &mut rng);
                let pause_us = [500, 100_000, 1_000_000][rng.below(3)];
                cluster.net.run_for(Duration::from_micros(rng.below(pause_us) as u64));
            }
            cluster.net.islands.fill(0);
            for host in 0..HOSTS {
                if cluster.net.hosts[host].paused {
                    cluster.net.resume(host);
                }
            }
            cluster.must_agree(&format!("history {seed}, loss {loss}"));
        }
    }
}

/// One random thing. Host 0, by which the others find each other, is never down.
fn something_happens(cluster: &mut Cluster<'_>, rng: &mut Rng) {
    let (host, name) = (rng.below(HOSTS), GROUPS[rng.below(GROUPS.len())]);
    let is_up = cluster.truth[host].is_some();
    let is_in = cluster.truth[host].as_ref().is_some_and(|groups| groups.contains(name));
    match rng.below(12) {
        0 if is_up && host > 0 => cluster.crash(host),
        1 if cluster.runs(host) && host > 0 => cluster.stop(host),
        2 if is_up && host > 0 => cluster.net.hosts[host].paused = true,
        3 => cluster.net.islands[host] = rng.below(2) as u32,
        4 => cluster.net.islands.fill(0),
        5..=7 if !is_up => cluster.restart(host),
        5 if cluster.net.hosts[host].paused => cluster.net.resume(host),
        6..=11 if cluster.runs(host) && is_in => cluster.leave(host, name),
        6..=11 if cluster.runs(host) => cluster.join(host, name),
        _ => {}
    }
}

const SECOND: Duration = Duration::from_secs(1);
/// Histories that are played of each provider.
const HISTORIES: u64 = 100;

//! Tests of the membership providers in a world.
//!
//! The tests in this file are common to all providers. Each [`Subject`] declares the features that
//! its provider lacks. The tests then check the provider's behavior without the feature.

#![allow(clippy::unwrap_used, missing_docs)]

mod cluster;
mod detectors;
mod gossip;
mod observers;
mod probe;
mod registry;
mod rig;

use std::time::Duration;

use carom_proto::membership::Membership;
use carom_proto::membership::gossip::{Config, Gossip};
use carom_proto::membership::service::{Service, ServiceConfig};
use carom_proto::membership::static_list::StaticMembership;
use carom_proto::{GroupSettings, JoinError, NodeId, Profile, RateOfFire, Rng, ViewChangeKind};
use carom_sim::HostIx;

use cluster::Cluster;
use rig::{Rig, ix, node_id, settings};

struct Subject {
    name: &'static str,
    /// Creates the provider of a node on one of the first [`HOSTS`] hosts, from a seed.
    provider: fn(HostIx, NodeId, u64) -> Box<dyn Membership>,
    is_served: bool,
    /// `true` if the provider reports joins and leaves. Otherwise, all listed nodes are in all
    /// groups.
    tells_changes: bool,
    /// Maximum time to report a crash, or `None` if the provider reports no crashes.
    detects_within: Option<Duration>,
    /// Time at which the provider reports that the settings of a group's members differ.
    compares_settings: Compares,
    meets: Meets,
    /// Maximum time after the network has healed until views consist of the members.
    agrees_within: Duration,
}

#[derive(Clone, Copy, PartialEq)]
enum Compares {
    Never,
    /// In the join itself, once the node has settled.
    AtOnce,
    /// After the join, by [`carom_proto::membership::MembershipEvent::Refused`].
    Later,
}

#[derive(Clone, Copy)]
enum Meets {
    AllThatAreListed,
    AllThatAreUp,
    WhoSharesAGroup,
}

const SUBJECTS: [&Subject; 3] = [
    &Subject {
        name: "static",
        provider: |_, id, _| {
            let list = (0..HOSTS).map(|host| (node_id(host), ix(host).endpoint()));
            Box::new(StaticMembership::new(id, list))
        },
        is_served: false,
        tells_changes: false,
        detects_within: None,
        compares_settings: Compares::Never,
        meets: Meets::AllThatAreListed,
        agrees_within: Duration::ZERO,
    },
    &Subject {
        name: "gossip",
        provider: |host, id, seed| {
            let seeds = vec![ix(0).endpoint()];
            let config = Config { seeds, lan_hello: false, ..Config::default() };
            Box::new(Gossip::new(id, host.endpoint(), config, seed))
        },
        is_served: false,
        tells_changes: true,
        detects_within: Some(Duration::from_secs(3)),
        compares_settings: Compares::AtOnce,
        meets: Meets::AllThatAreUp,
        agrees_within: Duration::from_secs(20),
    },
    &Subject {
        name: "registry",
        provider: |host, id, seed| {
            let addresses = [HOSTS, HOSTS + 1].map(|host| ix(host).endpoint()).into();
            let config = ServiceConfig { addresses, ..ServiceConfig::default() };
            Box::new(Service::new(id, host.endpoint(), config, seed))
        },
        is_served: true,
        tells_changes: true,
        // The lease, and the delays of the store and of reports.
        detects_within: Some(Duration::from_millis(3100)),
        compares_settings: Compares::Later,
        meets: Meets::WhoSharesAGroup,
        agrees_within: Duration::from_secs(25),
    },
];
const HOSTS: usize = 8;
const GROUPS: [&str; 3] = ["all", "a", "b"];

#[test]
fn join_is_reported_once_and_joiner_learns_of_all_members() {
    for subject in SUBJECTS {
        for loss in [0.0, 0.05] {
            let mut cluster = Cluster::new(subject, loss, 1);
            cluster.run_for(SECOND);
            for host in 0..HOSTS {
                cluster.join(host, "all");
                cluster.must_agree("after a join");
            }
            for host in 0..HOSTS {
                let others = (0..HOSTS).filter(|other| *other != host).map(node_id);
                for other in others {
                    let told = cluster.told(host, other);
                    assert_eq!(told, [ViewChangeKind::Joined], "{}", subject.name);
                }
                assert!(cluster.node(host).settled_at.is_some(), "{}", subject.name);
            }
        }
    }
}

#[test]
fn stopped_node_has_left_and_crashed_node_has_failed() {
    use ViewChangeKind::{Failed, Joined, Left};
    for subject in SUBJECTS {
        for seed in 0..4 {
            let mut cluster = Cluster::agreed(subject, 0.0, seed);
            let [leaves, stops, crashes] = [1, 2, 3].map(|host| cluster.id(host));
            cluster.leave(1, "all");
            cluster.stop(2);
            cluster.must_agree_within(SECOND, "after a leave and a stop");
            cluster.crash(3);
            let end = subject.detects_within.unwrap_or_default();
            if subject.tells_changes && subject.detects_within.is_none() {
                panic!("{}: the subject does not declare its crash detection", subject.name);
            }
            cluster.must_agree_within(end, "after a crash");
            cluster.run_for(10 * SECOND);
            for host in [0, 4, 5, 6, 7] {
                let told = [leaves, stops, crashes].map(|node| cluster.told(host, node));
                let expected = match subject.tells_changes {
                    true => [vec![Joined, Left], vec![Joined, Left], vec![Joined, Failed]],
                    false => [(); 3].map(|()| vec![Joined]),
                };
                assert_eq!(told, expected, "{}, seed {seed}, host {host}", subject.name);
            }
        }
    }
}

#[test]
fn returning_node_is_a_new_member_and_sees_all_others() {
    use ViewChangeKind::{Failed, Joined, Left};
    for subject in SUBJECTS {
        for (seed, pause_ms) in [(1, 0), (2, 500), (3, 5000)] {
            let mut cluster = Cluster::agreed(subject, 0.01, seed);
            let before = cluster.id(5);
            cluster.crash(5);
            cluster.run_for(Duration::from_millis(pause_ms));
            cluster.start(5);
            cluster.join(5, "all");
            cluster.must_agree("after the return");
            let (name, now) = (subject.name, cluster.id(5));
            assert_ne!(before, now);
            for host in (0..HOSTS).filter(|host| *host != 5) {
                let told = [before, now].map(|node| cluster.told(host, node));
                if subject.tells_changes {
                    let gone = [[Joined, Failed], [Joined, Left]];
                    let is_gone = gone.iter().any(|gone| told[0] == gone);
                    assert!(is_gone && told[1] == [Joined], "{name}, host {host}: {told:?}");
                } else {
                    assert_eq!(told, [vec![Joined], vec![]], "{name} has a fixed list");
                }
            }
        }
    }
}

#[test]
fn contradicting_settings_are_refused_with_both_values() {
    for subject in SUBJECTS {
        let mut cluster = Cluster::agreed(subject, 0.0, 1);
        let name = subject.name;
        cluster.leave(1, "all");
        cluster.must_agree("after a leave");
        let ours = GroupSettings::new("all", Profile::TimeCritical(RateOfFire::new(8, 3)));
        let mut joined = cluster.join_with(1, "all", ours);
        let compares = subject.compares_settings;
        if compares == Compares::Later {
            assert_eq!(joined, Ok(()), "{name}: another node must be queried first");
            cluster.run_for(SECOND);
            joined = cluster.node(1).refused.first().map_or(Ok(()), |(_, error)| Err(*error));
        }
        if compares == Compares::Never {
            assert_eq!(joined, Ok(()), "{name} knows no settings but its own");
        } else {
            let Err(JoinError::Contradiction { ours: told, theirs, by }) = joined else {
                panic!("{name}: {joined:?}");
            };
            assert_eq!((told, theirs), (ours, settings("all")), "{name}");
            assert!(cluster.expected(1, "all").contains(&by), "{name}: by {by}");
        }
        // Every provider detects these errors, which a node can detect by itself.
        assert_eq!(cluster.join_with(0, "all", settings("all")), Err(JoinError::AlreadyJoined));
        let collision = GroupSettings { name_check: 1, ..settings("all") };
        assert_eq!(cluster.join_with(0, "all", collision), Err(JoinError::NameCollision));
    }
}

#[test]
fn left_group_can_be_rejoined_and_a_stopped_node_is_gone() {
    for subject in SUBJECTS {
        let mut cluster = Cluster::agreed(subject, 0.0, 1);
        for _ in 0..3 {
            cluster.leave(4, "all");
            cluster.join(4, "all");
        }
        cluster.must_agree("after leaving and joining");
        cluster.stop(4);
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
                cluster.run_for(Duration::from_micros(rng.below(pause_us) as u64));
            }
            cluster.heal();
            cluster.must_agree(&format!("history {seed}, loss {loss}"));
        }
    }
}

/// Executes a random step. Host 0, the seed of the others, is never down.
fn something_happens(cluster: &mut Cluster<'_>, rng: &mut Rng) {
    let (host, name) = (rng.below(HOSTS), GROUPS[rng.below(GROUPS.len())]);
    let is_up = cluster.truth[host].is_some();
    let is_in = cluster.truth[host].as_ref().is_some_and(|groups| groups.contains(name));
    match rng.below(14) {
        0 if is_up && host > 0 => cluster.crash(host),
        1 if cluster.runs(host) && host > 0 => cluster.stop(host),
        2 if is_up && host > 0 => cluster.rig.pause(host),
        3 => cluster.set_cut_off(host, rng.chance(0.5)),
        4 => (0..HOSTS).for_each(|host| cluster.set_cut_off(host, false)),
        5..=7 if !is_up => cluster.start(host),
        5 if cluster.is_paused(host) => cluster.rig.resume(host),
        6..=11 if cluster.runs(host) && is_in => cluster.leave(host, name),
        6..=11 if cluster.runs(host) => cluster.join(host, name),
        what @ 12..=13 => {
            let Rig { world, services: Some(services), .. } = &mut cluster.rig else { return };
            let which = host % services.count();
            match what {
                12 => services.kill(world, which),
                _ => services.start(world, which),
            }
        }
        _ => {}
    }
}

const SECOND: Duration = Duration::from_secs(1);
const HISTORIES: u64 = 100;

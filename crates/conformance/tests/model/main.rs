//! Model checking of rings of three members: every order of a bounded number of events.
//!
//! # The model
//!
//! The actors are the engine itself (`replica`), and the datagrams are its own. A state of the
//! model (`rings`) consists of the states of all members, the datagrams in flight between any two
//! of them, and the remaining number of each kind of event. The state of a member follows from its
//! inputs. Two histories with the same engine, clock and account are the same (`histories`).
//!
//! These rules hold in every reachable state:
//!
//! - There is one round and one message for each place of the order.
//! - A resilient message is delivered only when as many members have it as it requires.
//! - One ring continues.
//! - A member that receives messages is in the ring, and all members of the ring agree on its
//!   members.
//! - The rules of simulated runs (`carom_conformance::rmp::checkers`) hold.
//!
//! Every state without datagrams in flight recovers if there are no further faults (`calm`): all
//! remaining members are in one ring, and each message was delivered, or its sender was notified
//! that its outcome is unknown.
//!
//! # Bounds
//!
//! Each test sets the number of messages, losses, duplicates, reorderings, timeouts, suspicions,
//! crashes and partitions. Within these bounds, the search is complete, without a limit on depth.
//! Each test asserts a minimum number of states, and that its subject occurs in some of them. To go
//! far with few events, the engines try once where a real ring tries five times, except for the
//! first request to join a ring.
//!
//! Time is abstract: each member has its own clock, which advances only when its next timer is
//! chosen to be due, regardless of the others' clocks. All orders of timers of different members
//! are covered, but a member's own timers are due in their order, and datagrams take no time.
//!
//! Locks, requests, hosts without multicast, messages of several packets and rings of more than
//! three are not covered. The merging of rings is covered only in the runs of `calm`. The scenarios
//! of `carom-lab sim fuzz --protocol rmp` cover longer histories and larger rings.

use std::collections::BTreeSet;

use carom_proto::ring::{Qos, Quorum};
use stateright::{Checker as _, HasDiscoveries, Model as _};

mod calm;
mod histories;
mod replica;
mod rings;
mod rules;

use self::histories::Known;
use self::replica::{Flaw, Terms};
use self::rings::{Budget, MEMBERS, Reached, Rings, Scenario};

fn three() -> Scenario {
    Scenario {
        members: 3,
        terms: TERMS,
        sends: Vec::new(),
        is_unordered: false,
        may: Budget::default(),
    }
}

const TERMS: Terms = Terms { quorum: Quorum::Majority, tries: 0, flaw: None };
/// Terms with which a member is suspected only after a second timeout.
const PATIENT: Terms = Terms { tries: 1, ..TERMS };

const ALL_TOLD: Reached = Reached("all members receive all messages", |scenario, members| {
    members.iter().all(|member| member.told.len() == scenario.sends.len())
});
const ALL_IN: Reached = Reached("all three are in one ring", |_, members| {
    members.iter().all(|member| member.view().len() == 3)
});
const TWO_LEFT: Reached = Reached("two members continue without the third", |_, members| {
    members.iter().filter(|member| reforms(member) > 0 && member.view().len() == 2).count() == 2
});
const TWICE: Reached = Reached("a ring is reformed twice", |_, members| {
    members.iter().any(|member| reforms(member) > 1)
});

fn reforms(member: &Known) -> usize {
    let epochs: BTreeSet<_> = member.views().map(|view| view.epoch).collect();
    epochs.len().saturating_sub(1)
}

fn assert_holds(scenario: Scenario, reached: &[Reached], least: usize) {
    let rings = Rings::of(scenario, reached);
    let checker = rings.checker().threads(1).finish_when(HasDiscoveries::AnyFailures);
    let checker = checker.spawn_bfs().join();
    let model = checker.model();
    let discoveries = checker.discoveries();
    for (name, path) in &discoveries {
        let is_reached = reached.iter().any(|it| it.0 == *name);
        let state = path.last_state();
        let (broken, ending) = (model.broken(state), model.ending(state));
        let actions = path.clone().into_actions();
        assert!(is_reached, "{name}: {broken:?}, finally {ending:?}, after {actions:#?}");
    }
    let missing: Vec<_> = reached.iter().filter(|it| !discoveries.contains_key(it.0)).collect();
    assert!(missing.is_empty(), "conditions never met: {missing:?}");
    let count = checker.unique_state_count();
    assert!(count >= least, "only {count} states were checked");
}

fn finds(scenario: Scenario, rule: &'static str) -> bool {
    let rings = Rings::of(scenario, &[]);
    let is_found = HasDiscoveries::AllOf([rule].into());
    let checker = rings.checker().threads(1).finish_when(is_found).spawn_bfs().join();
    checker.discovery(rule).is_some()
}

#[test]
fn messages_have_one_order_on_an_unreliable_network() {
    let sends = vec![(0, Qos::TotallyOrdered), (1, Qos::TotallyOrdered)];
    let may = Budget { losses: 1, repeats: 1, ..Budget::default() };
    let scenario = Scenario { terms: PATIENT, sends, is_unordered: true, may, ..three() };
    assert_holds(scenario, &[ALL_TOLD], 5000);
}

#[test]
fn messages_have_one_order_though_timers_are_due_at_any_time() {
    let sends = vec![(0, Qos::TotallyOrdered), (1, Qos::TotallyOrdered)];
    let may = Budget { losses: 1, overtakings: 1, timeouts: 1, ..Budget::default() };
    assert_holds(Scenario { terms: PATIENT, sends, may, ..three() }, &[ALL_TOLD], 25_000);
}

#[test]
fn resilient_message_is_delivered_after_all_have_it() {
    let sends = vec![(0, Qos::TotallyResilient)];
    let may = Budget { losses: 1, repeats: 1, timeouts: 1, ..Budget::default() };
    let scenario = Scenario { terms: PATIENT, sends, is_unordered: true, may, ..three() };
    assert_holds(scenario, &[ALL_TOLD], 10_000);
}

#[test]
fn a_member_that_joins_is_in_the_ring_or_not() {
    let sends = vec![(0, Qos::TotallyOrdered)];
    let may = Budget { joins: 1, losses: 1, timeouts: 1, ..Budget::default() };
    let scenario = Scenario { members: 2, terms: PATIENT, sends, may, ..three() };
    assert_holds(scenario, &[ALL_IN], 50_000);
}

#[test]
fn a_member_that_leaves_is_out_of_the_ring_or_not() {
    let sends = vec![(0, Qos::TotallyOrdered)];
    let may = Budget { leaves: 1, losses: 1, overtakings: 1, repeats: 1, ..Budget::default() };
    let scenario = Scenario { terms: PATIENT, sends, may, ..three() };
    let left = Reached("a ring of two is left", |_, members| {
        members.iter().filter(|it| reforms(it) == 0 && it.view().len() == 2).count() >= 2
    });
    assert_holds(scenario, &[left], 3000);
}

#[test]
fn one_ring_continues_when_a_member_crashes() {
    let may = Budget { crashes: 1, suspicions: 1, timeouts: 1, ..Budget::default() };
    assert_holds(Scenario { may, ..three() }, &[TWO_LEFT], 5000);
}

#[test]
fn one_ring_continues_when_a_member_is_cut_off() {
    let may = Budget { cuts: 1, heals: 1, suspicions: 1, timeouts: 1, ..Budget::default() };
    assert_holds(Scenario { may, ..three() }, &[TWO_LEFT], 1000);
}

#[test]
fn messages_have_one_order_though_members_suspect_each_other() {
    let sends = vec![(0, Qos::TotallyOrdered)];
    let may = Budget { suspicions: 2, ..Budget::default() };
    assert_holds(Scenario { sends, may, ..three() }, &[ALL_TOLD, TWICE], 50_000);
}

#[test]
fn one_ring_continues_under_suspicions_and_early_timeouts() {
    let may = Budget { suspicions: 2, timeouts: 1, ..Budget::default() };
    assert_holds(Scenario { may, ..three() }, &[TWICE], 50_000);
}

#[test]
fn two_rings_are_found_if_a_minority_may_continue() {
    let may = Budget { cuts: 1, suspicions: 2, timeouts: 2, ..Budget::default() };
    let terms = Terms { quorum: Quorum::AtLeast(1), ..TERMS };
    let scenario = Scenario { terms, may, ..three() };
    assert!(finds(scenario, rules::ONE_RING));
}

#[test]
fn a_member_that_does_not_wait_for_the_others_is_found() {
    let terms = Terms { flaw: Some((1, Flaw::DeliversEarly)), ..TERMS };
    let sends = vec![(0, Qos::TotallyResilient)];
    assert!(finds(Scenario { terms, sends, ..three() }, rules::HELD));
}

#[test]
fn a_member_that_gives_two_messages_one_place_is_found() {
    let sends: Vec<_> = (0..MEMBERS).map(|member| (member, Qos::TotallyOrdered)).collect();
    for rule in [rules::ONE_ROUND, rules::ONE_MESSAGE, rules::HISTORY] {
        // Two messages wait for the member that gets the token with the first round.
        let is_found = (0..MEMBERS).any(|member| {
            let terms = Terms { flaw: Some((member, Flaw::ReusesPlaces)), ..TERMS };
            let sends = sends.clone();
            finds(Scenario { terms, sends, is_unordered: true, ..three() }, rule)
        });
        assert!(is_found, "{rule} is never broken");
    }
}

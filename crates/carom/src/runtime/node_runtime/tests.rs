//! Tests a node whose registry is controlled by the test.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_channel::Receiver;
use carom_proto::loss::Loss;
use carom_proto::membership::{Membership, MembershipEvent};
use carom_proto::{
    Endpoint, GroupId, GroupSettings, Incarnation, JoinError, NodeId, Origin, Time, Wakeup,
    lateral, rdcm, rmp,
};

use super::{NodeRuntime, NodeSpec};
use crate::runtime::pending_joins::JOIN_WAIT;
use crate::shared::commands::{NodeCommand, ReplySender};
use crate::shared::error::JoinGroupError;
use crate::shared::group::GroupParts;
use crate::shared::node::NodeState;
use crate::shared::notices::NoticeLog;
use crate::shared::profile::Profile;
use crate::shared::status::{Buffers, Status};
use crate::sim::SimNetwork;

#[derive(Clone, Default)]
struct Played {
    answered: Arc<Mutex<Answered>>,
    questions: Arc<AtomicU64>,
}

#[derive(Default)]
struct Answered {
    groups: BTreeSet<GroupId>,
    news: BTreeSet<GroupId>,
}

impl Played {
    fn with<T>(&self, work: impl FnOnce(&mut Answered) -> T) -> T {
        work(&mut self.answered.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn answer(&self, name: &str) {
        let group = GroupId::of_name(name);
        self.with(|answered| {
            answered.groups.insert(group);
            answered.news.insert(group);
        });
    }

    fn questions(&self) -> u64 {
        self.questions.load(Ordering::Relaxed)
    }
}

impl Membership for Played {
    fn join(&mut self, _: Time, _: GroupId, _: GroupSettings) -> Result<(), JoinError> {
        Ok(())
    }
    fn leave(&mut self, _: Time, _: GroupId) {}
    fn poll_event(&mut self) -> Option<MembershipEvent> {
        None
    }
    fn poll_joined(&mut self) -> Option<GroupId> {
        self.with(|answered| answered.news.pop_first())
    }
    /// Returns an immediate wake-up, so that the node polls for confirmations at each turn.
    fn poll_timeout(&self) -> Option<Wakeup> {
        Some(Wakeup { at: Time::ZERO, reason: "the test" })
    }
    fn nodes(&self) -> Vec<(NodeId, Endpoint)> {
        Vec::new()
    }
    fn is_settled(&self) -> bool {
        false
    }
    fn has_joined(&self, group: GroupId) -> bool {
        self.questions.fetch_add(1, Ordering::Relaxed);
        self.with(|answered| answered.groups.contains(&group))
    }
}

fn runtime(service: &Played) -> NodeRuntime<SimNetwork> {
    runtime_and_state(service).0
}

fn runtime_and_state(service: &Played) -> (NodeRuntime<SimNetwork>, Arc<NodeState>) {
    let (id, endpoint) = (NodeId(1), SocketAddr::from(([10, 0, 0, 1], 7400)));
    let first_status = Status::first(id, endpoint, Buffers::default());
    let spec = NodeSpec {
        lateral: lateral::Config::default(),
        ordered: rmp::Config::default(),
        bulk: rdcm::Config::default(),
        guest: None,
        membership: Box::new(service.clone()),
        origin: Origin { node: id, incarnation: Incarnation(1) },
        seed: 7,
        seeds: Vec::new(),
        registries: vec!["registry:7402".into()],
        notices: Arc::new(NoticeLog::default()),
        first_status,
        queue_events: 16,
    };
    NodeRuntime::new(spec, SimNetwork::new(Loss::None, 7))
}

type Answer = Receiver<Result<GroupParts, JoinGroupError>>;

fn join(runtime: &mut NodeRuntime<SimNetwork>, now: Time, name: &str, profile: Profile) -> Answer {
    let (reply, answer) = ReplySender::channel();
    runtime.command(now, NodeCommand::Join { name: name.into(), profile, reply });
    answer
}

fn after(seconds: u64) -> Time {
    Time::ZERO + Duration::from_secs(seconds)
}

#[test]
fn join_that_the_service_answered_succeeds_without_a_ring() {
    let service = Played::default();
    let mut runtime = runtime(&service);
    let electorate = Profile::ordered().quorum_of(3).voter(false);
    let [answered, open] =
        ["locks", "others"].map(|name| join(&mut runtime, Time::ZERO, name, electorate));
    service.answer("locks");
    for second in 0..=10 {
        runtime.serve(after(second));
    }
    let joined = answered.try_recv().expect("its time limit has passed");
    assert!(joined.is_ok(), "the registry has answered: {:?}", joined.err());
    let refused = open.try_recv().expect("its time limit has passed");
    assert!(matches!(refused, Err(JoinGroupError::ServiceAway { .. })), "{refused:?}");
}

fn questions(groups: u64, profile: Profile) -> u64 {
    let service = Played::default();
    let mut runtime = runtime(&service);
    let names: Vec<String> = (0..groups).map(|number| format!("group {number}")).collect();
    let waits = |name: &String| join(&mut runtime, Time::ZERO, name, profile);
    let mut joins: Vec<Answer> = names.iter().map(waits).collect();
    assert!(joins.iter().all(|answer| answer.try_recv().is_err()), "no registry has answered yet");
    for name in &names {
        service.answer(name);
        runtime.serve(after(1));
    }
    // Shorter than the maximum wait for a ring.
    for step in 1..JOIN_WAIT.as_millis() as u32 / 100 {
        joins.retain(|answer| answer.try_recv().map(|joined| joined.expect("joined")).is_err());
        runtime.serve(after(1) + step * Duration::from_millis(100));
    }
    assert_eq!(joins.len(), 0, "the registry has answered, and no member is awaited");
    service.questions()
}

#[test]
fn joining_many_groups_at_once_costs_the_same_for_each() {
    for profile in [Profile::time_critical(), Profile::ordered()] {
        let (few, many) = (questions(50, profile), questions(500, profile));
        assert!(many <= 10 * few, "{few} queries for 50 groups, {many} for 500");
    }
}

#[test]
fn join_waits_while_the_service_answers_others() {
    let service = Played::default();
    let mut runtime = runtime(&service);
    let names: Vec<String> = (0..10).map(|number| format!("group {number}")).collect();
    let waits = |name: &String| join(&mut runtime, Time::ZERO, name, Profile::time_critical());
    let joins: Vec<Answer> = names.iter().map(waits).collect();
    // One answer every 3 s, so that the time without any answer never exceeds 5 s.
    for (number, (name, answer)) in names.iter().zip(&joins).enumerate().take(9) {
        service.answer(name);
        runtime.serve(after(3 * number as u64));
        assert!(matches!(answer.try_recv(), Ok(Ok(_))), "{name} is answered");
    }
    runtime.serve(after(28));
    assert!(joins[9].try_recv().is_err(), "4 s after the last answer");
    runtime.serve(after(29));
    let refused = joins[9].try_recv().expect("its time limit has passed");
    assert!(matches!(refused, Err(JoinGroupError::ServiceAway { .. })), "{refused:?}");
}

#[test]
fn handles_of_a_node_see_where_it_has_moved_to() {
    let (mut runtime, state) = runtime_and_state(&Played::default());
    let moved = SocketAddr::from(([10, 0, 0, 2], 7400));
    assert_eq!(state.endpoint(), SocketAddr::from(([10, 0, 0, 1], 7400)));
    runtime.on_move(after(1), moved);
    assert_eq!(state.endpoint(), moved);
}

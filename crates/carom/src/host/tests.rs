//! Joins at a host whose membership answers when the test says so.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_channel::Receiver;
use carom_proto::loss::Loss;
use carom_proto::membership::{Membership, MembershipEvent};
use carom_proto::{
    Endpoint, GroupId, GroupSettings, Incarnation, JoinError, NodeId, Origin, Time, Transmit,
    Wakeup, lateral, rdcm, rmp,
};

use super::Host;
use crate::command::NodeCommand;
use crate::error::JoinGroupError;
use crate::group::GroupParts;
use crate::host::Founding;
use crate::node::Notices;
use crate::profile::Profile;
use crate::sim::SimNetwork;
use crate::status::{Buffers, Stats, Status};

/// A membership service that the test plays.
#[derive(Clone, Default)]
struct Played {
    answered: Arc<Mutex<Answered>>,
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

    /// The service has answered the join of this group.
    fn answer(&self, name: &str) {
        let group = GroupId::of_name(name);
        self.with(|answered| {
            answered.groups.insert(group);
            answered.news.insert(group);
        });
    }
}

impl Membership for Played {
    fn join(&mut self, _: Time, _: GroupId, _: GroupSettings) -> Result<(), JoinError> {
        Ok(())
    }
    fn leave(&mut self, _: Time, _: GroupId) {}
    fn shut_down(&mut self, _: Time) {}
    fn handle_datagram(&mut self, _: Time, _: Endpoint, _: &[u8]) {}
    fn handle_timeout(&mut self, _: Time) {}
    fn poll_transmit(&mut self, _: &mut Vec<u8>) -> Option<Transmit> {
        None
    }
    fn poll_event(&mut self) -> Option<MembershipEvent> {
        None
    }
    fn poll_joined(&mut self) -> Option<GroupId> {
        self.with(|answered| answered.news.pop_first())
    }
    /// The node asks for what is new at each of its turns.
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
        self.with(|answered| answered.groups.contains(&group))
    }
    fn stats(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
    fn check(&self) {}
}

/// A host whose membership service is played by the test.
fn host(service: &Played) -> Host<SimNetwork> {
    let (id, endpoint) = (NodeId(1), SocketAddr::from(([10, 0, 0, 1], 7400)));
    let first_status = Status {
        id,
        endpoint,
        interface: String::new(),
        interface_reason: String::new(),
        settled: false,
        is_away: false,
        path_mtu: 0,
        members: Vec::new(),
        groups: Vec::new(),
        stats: Stats::default(),
        buffers: Buffers::default(),
    };
    let founding = Founding {
        lateral: lateral::Config::default(),
        ordered: rmp::Config::default(),
        bulk: rdcm::Config::default(),
        guest: None,
        membership: Box::new(service.clone()),
        origin: Origin { node: id, incarnation: Incarnation(1) },
        seed: 7,
        seeds: Vec::new(),
        controls: vec!["control:7402".into()],
        notices: Arc::new(Notices::default()),
        first_status,
        queue_events: 16,
    };
    Host::new(founding, SimNetwork::new(Loss::None, 7)).0
}

type Answer = Receiver<Result<GroupParts, JoinGroupError>>;

fn join(host: &mut Host<SimNetwork>, now: Time, name: &str, profile: Profile) -> Answer {
    let (reply, answer) = async_channel::bounded(1);
    host.command(now, NodeCommand::Join { name: name.into(), profile, reply });
    answer
}

fn after(seconds: u64) -> Time {
    Time::ZERO + Duration::from_secs(seconds)
}

#[test]
fn join_that_the_service_answered_succeeds_without_a_ring() {
    let service = Played::default();
    let mut host = host(&service);
    let electorate = Profile::ordered().quorum_of(3).voter(false);
    let [answered, open] =
        ["locks", "others"].map(|name| join(&mut host, Time::ZERO, name, electorate));
    service.answer("locks");
    for second in 0..=10 {
        host.serve(after(second));
    }
    let joined = answered.try_recv().expect("its time is over");
    assert!(joined.is_ok(), "the service has answered: {:?}", joined.err());
    let refused = open.try_recv().expect("its time is over");
    assert!(matches!(refused, Err(JoinGroupError::ServiceAway { .. })), "{refused:?}");
}

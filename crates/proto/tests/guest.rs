//! Nodes with and without an engine from outside this crate.

use std::sync::mpsc::{self, Sender};

use carom_proto::membership::static_list::StaticMembership;
use carom_proto::membership::{Membership, MembershipEvent};
use carom_proto::node::{Node, NodeEvent};
use carom_proto::wire::{Datagram, Header, Protocol};
use carom_proto::*;

const NOW: Time = Time(1_000_000_000);
const SOURCE: Endpoint =
    Endpoint(std::net::SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 7400));

struct Scribe(Sender<String>);

impl Scribe {
    fn note(&self, what: String) {
        self.0.send(what).expect("the test listens");
    }
}

impl Engine for Scribe {
    fn join(&mut self, _: Time, group: GroupId, settings: GroupSettings) -> Result<(), JoinError> {
        self.note(format!("join {group:?} {settings}"));
        Ok(())
    }
    fn leave(&mut self, _: Time, group: GroupId) {
        self.note(format!("leave {group:?}"));
    }
    fn send(
        &mut self,
        _: Time,
        group: GroupId,
        payload: bytes::Bytes,
        _: SendOptions,
    ) -> Result<SeqNo, SendError> {
        self.note(format!("send {group:?} {payload:?}"));
        Ok(SeqNo::FIRST)
    }
    fn confirm(&mut self, _: Time, group: GroupId) {
        self.note(format!("confirm {group:?}"));
    }
    fn handle_datagram(&mut self, _: Time, datagram: &Datagram<'_>) -> Option<NodeId> {
        self.note(format!("datagram of {}", datagram.bytes().len()));
        datagram.body().is_ok().then_some(datagram.header().sender)
    }
    fn handle_view(&mut self, _: Time, change: &ViewChange) {
        self.note(format!("view {:?}", change.node));
    }
    fn handle_timeout(&mut self, _: Time) {}
    fn poll_transmit(&mut self, _: &mut Vec<u8>) -> Option<Transmit> {
        None
    }
    fn poll_event(&mut self) -> Option<Event> {
        None
    }
    fn poll_timeout(&self) -> Option<Wakeup> {
        Some(Wakeup { at: Time(7), reason: "the guest's" })
    }
    fn payload_limit(&self, _: Profile) -> usize {
        321
    }
    fn held_bytes(&self) -> usize {
        0
    }

    fn stats(&self) -> Vec<(&'static str, u64)> {
        vec![("pages", 9)]
    }
    fn check(&self) {}
}

fn plain_node() -> Node {
    let others = vec![(NodeId(2), SOURCE)];
    let membership = Box::new(StaticMembership::new(NodeId(1), others));
    Node::new(NodeId(1), lateral::Config::default(), membership, 5)
}

fn datagram(group: GroupId) -> Vec<u8> {
    Header::new(Protocol::Guest, 9, group, NodeId(2)).datagram(&[])
}

fn hear(node: &mut Node, datagram: &[u8]) {
    node.handle_datagram(NOW, SOURCE, &Datagram::parse(datagram).expect("a datagram"));
}

#[test]
fn node_without_guest_refuses_its_groups_and_datagrams() {
    let mut node = plain_node();
    let refused = node.join(NOW, "prices", Profile::Guest);
    assert_eq!(refused, Err(JoinError::NoEngine { profile: Profile::Guest }));
    assert_eq!(node.groups().count(), 0);
    hear(&mut node, &datagram(GroupId::of_name("prices")));
    assert_eq!(node.counters().datagrams_unknown, 1);
}

#[test]
fn a_guest_carries_its_groups_and_nothing_else() {
    let (scribe, calls) = mpsc::channel();
    let mut node = plain_node().with_guest(Box::new(Scribe(scribe)));
    let rate = RateOfFire::default();
    let other = node.join(NOW, "other", Profile::TimeCritical(rate)).expect("a lateral group");
    let group = node.join(NOW, "prices", Profile::Guest).expect("a group of the guest");
    assert_eq!(node.payload_limit(group), Some(321));
    assert_eq!(node.poll_timeout().map(|wakeup| wakeup.at), Some(Time(7)));
    node.send(NOW, other, "lateral".into(), SendOptions::default()).expect("it is sent");
    node.send(NOW, group, "guest".into(), SendOptions::default()).expect("it is sent");
    hear(&mut node, &datagram(group));
    hear(&mut node, &datagram(GroupId(77)));
    assert_eq!(node.counters().datagrams_foreign, 1);
    node.confirm(NOW, group);
    node.leave(NOW, group);
    node.leave(NOW, other);
    let expected = [
        format!("join {group:?} guest"),
        "view node-2".into(),
        format!("send {group:?} b\"guest\""),
        "datagram of 36".into(),
        format!("confirm {group:?}"),
        format!("leave {group:?}"),
    ];
    assert!(calls.try_iter().eq(expected));
    assert_eq!(node.engines().guest.as_ref().map(|it| it.stats()), Some(vec![("pages", 9)]));
    let views = std::iter::from_fn(|| node.poll_event());
    let of_groups = views.filter(|event| matches!(event, NodeEvent::Group(Event::View(_))));
    assert_eq!(of_groups.count(), 2, "each group has its view, with any engine");
}

#[test]
fn the_lateral_engine_refuses_a_group_of_a_guest() {
    let mut engine = lateral::Lateral::new(NodeId(1), lateral::Config::default(), 3);
    let refused = engine.join(NOW, GroupId(4), GroupSettings::new("prices", Profile::Guest));
    assert_eq!(refused, Err(JoinError::NoEngine { profile: Profile::Guest }));
    assert_eq!(engine.payload_limit(Profile::Guest), 0);
}

struct Listener(Sender<NodeId>);

impl Membership for Listener {
    fn join(&mut self, _: Time, _: GroupId, _: GroupSettings) -> Result<(), JoinError> {
        Ok(())
    }
    fn leave(&mut self, _: Time, _: GroupId) {}
    fn heard(&mut self, _: Time, _: Endpoint, node: NodeId) {
        self.0.send(node).expect("the test listens");
    }
    fn poll_event(&mut self) -> Option<MembershipEvent> {
        None
    }
    fn nodes(&self) -> Vec<(NodeId, Endpoint)> {
        Vec::new()
    }
    fn is_settled(&self) -> bool {
        true
    }
}

#[test]
fn membership_hears_the_sender_of_every_valid_datagram() {
    let ((listener, heard), (scribe, _calls)) = (mpsc::channel(), mpsc::channel());
    let membership = Box::new(Listener(listener));
    let node = Node::new(NodeId(1), lateral::Config::default(), membership, 5);
    let mut node = node.with_guest(Box::new(Scribe(scribe)));
    let group = node.join(NOW, "prices", Profile::Guest).expect("a group of the guest");
    hear(&mut node, &datagram(group));
    hear(&mut node, &datagram(GroupId(77)));
    let mut damaged = datagram(group);
    damaged[20] ^= 1;
    hear(&mut node, &damaged);
    assert!(heard.try_iter().eq([NodeId(2)]), "not foreign or corrupted datagrams");

    let rate = RateOfFire::default();
    let settings = GroupSettings::new("other", Profile::TimeCritical(rate));
    let group = node.join(NOW, "other", settings.profile).expect("a lateral group");
    let mut data = Vec::new();
    for id in [3, 1] {
        let mut sender = lateral::Lateral::new(NodeId(id), lateral::Config::default(), 6);
        sender.join(NOW, group, settings).expect("the settings are good");
        let kind = ViewChangeKind::Joined;
        sender.handle_view(NOW, &ViewChange { group, node: NodeId(8), kind, version: 1 });
        sender.send(NOW, group, "hello".into(), SendOptions::default()).expect("it is sent");
        data.clear();
        sender.poll_transmit(&mut data).expect("a data packet");
        hear(&mut node, &data);
    }
    assert!(heard.try_iter().eq([NodeId(3)]), "and not this node's own");
}

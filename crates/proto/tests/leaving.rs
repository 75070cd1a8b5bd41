//! Two nodes in a group, one of which leaves.

use std::time::Duration;

use carom_proto::membership::static_list::StaticMembership;
use carom_proto::node::{LEAVE_WITHIN, Node, NodeEvent};
use carom_proto::ring::Quorum;
use carom_proto::wire::Datagram;
use carom_proto::{
    Destination, Endpoint, Event, GroupId, JoinError, NodeId, Profile, RateOfFire, SendOptions,
    Time, Transmit, lateral,
};

const ENDPOINTS: [Endpoint; 2] = [endpoint(1), endpoint(2)];

const fn endpoint(host: u8) -> Endpoint {
    let address = std::net::Ipv4Addr::new(10, 0, 0, host);
    Endpoint(std::net::SocketAddr::new(std::net::IpAddr::V4(address), 7000))
}

/// Two nodes, between which datagrams are exchanged once per millisecond.
struct Pair {
    now: Time,
    nodes: [Node; 2],
    /// `true` if no datagram arrives.
    is_cut: bool,
    told: Vec<NodeEvent>,
}

impl Pair {
    fn new() -> Self {
        let nodes = [1, 2].map(|id| {
            let all = (1..).map(NodeId).zip(ENDPOINTS);
            let membership = Box::new(StaticMembership::new(NodeId(id), all));
            Node::new(NodeId(id), lateral::Config::default(), membership, id)
        });
        Self { now: Time(1_000_000_000), nodes, is_cut: false, told: Vec::new() }
    }

    fn run_for(&mut self, millis: u32) {
        for _ in 0..millis {
            self.now = self.now + Duration::from_millis(1);
            let mut datagrams = Vec::new();
            for (from, node) in self.nodes.iter_mut().enumerate() {
                node.handle_timeout(self.now);
                let mut datagram = Vec::new();
                while let Some(Transmit { destination, .. }) = node.poll_transmit(&mut datagram) {
                    let is_meant =
                        matches!(destination, Destination::Group(_) | Destination::Tree(..))
                            || destination == Destination::Node(NodeId(2 - from as u64));
                    let datagram = std::mem::take(&mut datagram);
                    datagrams.extend((is_meant && !self.is_cut).then_some((from, datagram)));
                }
            }
            for (from, datagram) in datagrams {
                let datagram = Datagram::parse(&datagram).expect("a datagram");
                self.nodes[1 - from].handle_datagram(self.now, ENDPOINTS[from], &datagram);
            }
            self.told.extend(std::iter::from_fn(|| self.nodes[0].poll_event()));
        }
    }
}

/// The driver receives the group's multicast until [`NodeEvent::Out`] is reported.
#[test]
fn refused_rejoin_still_reports_the_left_group_as_out() {
    let mut pair = Pair::new();
    let profile = Profile::Ordered(Quorum::Majority);
    let now = pair.now;
    let [group, _] = std::array::from_fn(|place| {
        pair.nodes[place].join(now, "accounts", profile).expect("an ordered group")
    });
    pair.run_for(2000);
    assert_eq!(pair.nodes[0].members(group), [NodeId(2)]);
    // The other member cannot confirm the leave.
    pair.is_cut = true;
    pair.nodes[0].leave(pair.now, group);
    pair.run_for(5);
    assert!(pair.nodes[0].is_leaving());
    let is_out = |event: &NodeEvent| *event == NodeEvent::Out(GroupId::of_name("accounts"));
    assert!(!pair.told.iter().any(is_out));
    let refused = pair.nodes[0].join(pair.now, "accounts", Profile::Guest);
    assert_eq!(refused, Err(JoinError::NoEngine { profile: Profile::Guest }));
    pair.run_for(5);
    assert_eq!(pair.told.iter().filter(|event| is_out(event)).count(), 1);
    assert!(!pair.nodes[0].is_leaving());
}

const PROFILES: [Profile; 2] = [Profile::TimeCritical(RateOfFire { r: 8, c: 5 }), Profile::Bulk];

/// Returns a pair whose second node has sent three messages, the last of which did not reach the
/// first node.
fn pair_with_a_loss(profile: Profile) -> (Pair, GroupId) {
    let mut pair = Pair::new();
    let now = pair.now;
    let [group, _] = std::array::from_fn(|place| {
        pair.nodes[place].join(now, "prices", profile).expect("the settings are sound")
    });
    pair.run_for(500);
    for payload in ["first", "second", "last"] {
        pair.is_cut = payload == "last";
        let (node, options) = (&mut pair.nodes[1], SendOptions::default());
        node.send(pair.now, group, payload.into(), options).expect("it is in");
        pair.run_for(if pair.is_cut { 1 } else { 100 });
    }
    (pair, group)
}

#[test]
fn last_messages_of_a_sender_that_leaves_are_repaired() {
    for profile in PROFILES {
        let (mut pair, group) = pair_with_a_loss(profile);
        pair.is_cut = false;
        pair.nodes[1].leave(pair.now, group);
        assert!(pair.nodes[1].is_leaving(), "{profile}");
        pair.run_for(1000);
        assert!(!pair.nodes[1].is_leaving(), "{profile}");
        let messages = pair.told.iter().filter_map(|event| match event {
            NodeEvent::Group(Event::Message(message)) => Some(message.payload.as_ref()),
            _ => None,
        });
        assert_eq!(messages.collect::<Vec<_>>(), [&b"first"[..], b"second", b"last"], "{profile}");
    }
}

#[test]
fn sender_leaves_in_time_although_a_member_does_not_answer() {
    for profile in PROFILES {
        let (mut pair, group) = pair_with_a_loss(profile);
        pair.nodes[1].leave(pair.now, group);
        pair.run_for(LEAVE_WITHIN.as_millis() as u32 - 5);
        assert!(pair.nodes[1].is_leaving(), "{profile}");
        pair.run_for(10);
        assert!(!pair.nodes[1].is_leaving(), "{profile}");
        let outs = std::iter::from_fn(|| pair.nodes[1].poll_event());
        assert_eq!(outs.filter(|event| *event == NodeEvent::Out(group)).count(), 1, "{profile}");
    }
}

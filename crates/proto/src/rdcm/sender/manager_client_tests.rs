use alloc::collections::BTreeMap;

use bytes::Bytes;

use crate::rdcm::manager::messages::{Answer, Refusal, Request};
use crate::rdcm::manager::service::ManagerService;
use crate::rdcm::packet::{Packet, Place, Report};
use crate::rdcm::topology::{LinkId, Topology, Vertex};
use crate::rdcm::{Config, Hosts, ManagedBy, Network, Rdcm};
use crate::wire::{Datagram, Header};
use crate::{
    Endpoint, Engine as _, GroupId, GroupSettings, ManagerNews, NetworkChange, NodeId, Profile,
    SendOptions, Time, ViewChange, ViewChangeKind,
};

const BEGIN: Time = Time(1_000_000_000);
const MS: u64 = 1_000_000;

struct Sender {
    id: NodeId,
    group: GroupId,
    engine: Rdcm,
    now: Time,
    stream: u32,
    places: BTreeMap<NodeId, Place>,
}

fn endpoint(node: u64) -> Endpoint {
    Endpoint(([10, 0, 0, node as u8], 7400).into())
}

/// Creates two racks of three hosts, each linked to two spine switches. The hosts are nodes 1 to 6.
fn network() -> Network {
    let hosts = (1..=6).map(|it| format!("host {it}")).collect();
    let switches = ["left", "right", "spine 1", "spine 2"].map(str::to_owned).to_vec();
    let mut topology = Topology::new(hosts, switches, false).expect("it is small");
    for host in 0..6 {
        topology.link(Vertex(host), Vertex(6 + host / 3)).expect("both are there");
    }
    for (rack, spine) in [(6, 8), (6, 9), (7, 8), (7, 9)] {
        topology.link(Vertex(rack), Vertex(spine)).expect("both are there");
    }
    let mut places = Hosts::default();
    (1..=6).for_each(|it| places.place_address(endpoint(it).0.ip(), None, Vertex(it as u32 - 1)));
    let topology = topology.with_visitors().expect("there are switches");
    Network::Known { topology: topology.into(), hosts: places }
}

impl Sender {
    fn new(id: u64, receivers: &[u64]) -> Self {
        Self::in_network(Network::Unknown, id, receivers)
    }

    /// Creates a sender that uses `network` if it has no service.
    fn in_network(network: Network, id: u64, receivers: &[u64]) -> Self {
        let (group, id) = (GroupId(100 + id as u32), NodeId(id));
        let mut engine = Rdcm::new(id, Config { network, ..Config::default() }, 7);
        engine.join(BEGIN, group, GroupSettings::new("g", Profile::Bulk)).expect("a new group");
        let (stream, places) = (0, BTreeMap::new());
        let mut sender = Self { id, group, engine, now: BEGIN, stream, places };
        receivers.iter().for_each(|node| sender.change(*node, ViewChangeKind::Joined));
        sender
    }

    fn managed(id: u64, receivers: &[u64]) -> Self {
        let mut sender = Self::new(id, receivers);
        sender.hear_manager(&ManagerNews::Reached);
        sender.send();
        sender
    }

    fn change(&mut self, node: u64, kind: ViewChangeKind) {
        let met = NetworkChange::Met(NodeId(node), endpoint(node));
        self.engine.handle_network(self.now, &met);
        let change = ViewChange { group: self.group, node: NodeId(node), kind, version: 1 };
        self.engine.handle_view(self.now, &change);
        self.drain();
    }

    fn hear_manager(&mut self, news: &ManagerNews) {
        self.engine.handle_manager(self.now, news);
        self.drain();
    }

    fn send(&mut self) {
        let payload = Bytes::from_static(b"some");
        self.engine.send(self.now, self.group, payload, SendOptions::default()).expect("room");
        self.drain();
    }

    fn wait(&mut self, ms: u64) {
        self.now = Time(self.now.0 + ms * MS);
        self.drain();
    }

    fn live(&mut self, ms: u64) {
        for _ in 0..ms / 100 {
            self.wait(100);
            for (node, epoch) in self.told() {
                let report = Report { epoch, next: 2, limit: 1000, by_tree: 1, by_repair: 0 };
                self.hear(node, &Packet::Report(report));
            }
        }
    }

    fn told(&self) -> Vec<(u64, u32)> {
        self.places.iter().map(|(node, place)| (node.0, place.epoch)).collect()
    }

    fn hear(&mut self, from: u64, packet: &Packet) {
        let mut datagram = Vec::new();
        packet.encode(self.group, NodeId(from), self.stream, &mut datagram);
        self.engine.handle_datagram(self.now, &Datagram::parse(&datagram).expect("a datagram"));
        self.drain();
    }

    fn drain(&mut self) {
        self.engine.handle_timeout(self.now);
        let mut datagram = Vec::new();
        while let Some(transmit) = self.engine.poll_transmit(&mut datagram) {
            let (header, body) = Header::decode(&datagram).expect("it is ours");
            self.stream = header.view;
            if let Ok(Packet::Place { receiver, place }) = Packet::decode(&header, body)
                && let crate::Destination::Node(to) = transmit.destination
            {
                assert_eq!(receiver, to);
                let known = self.places.get(&to).map_or(0, |known| known.epoch);
                assert!(place.epoch >= known, "{to} was told {known} before {}", place.epoch);
                self.places.insert(to, place);
            }
            datagram.clear();
        }
        self.engine.check();
    }

    fn requests(&mut self) -> Vec<Vec<u8>> {
        core::iter::from_fn(|| self.engine.poll_manager_request()).collect()
    }

    fn managed_by(&self) -> Option<ManagedBy> {
        self.engine.managed_by(self.group)
    }

    fn epochs(&self) -> Vec<u32> {
        self.places.values().map(|place| place.epoch).collect()
    }
}

fn carry(service: &mut ManagerService, senders: &mut [&mut Sender]) {
    loop {
        let mut is_quiet = true;
        for sender in senders.iter_mut() {
            for request in sender.requests() {
                is_quiet = false;
                service.handle(sender.now, sender.id, endpoint(sender.id.0), &request);
                service.check();
            }
        }
        while let Some((to, answer)) = service.poll_answer() {
            is_quiet = false;
            for sender in senders.iter_mut().filter(|sender| sender.id == to) {
                sender.hear_manager(&ManagerNews::Answered(answer.clone()));
            }
        }
        if is_quiet {
            return;
        }
    }
}

#[test]
fn sender_announces_the_places_given_by_the_service() {
    let mut service = ManagerService::new(network(), 1);
    let mut sender = Sender::managed(1, &[2, 4, 5]);
    assert_eq!(sender.managed_by(), Some(ManagedBy::Service));
    assert!(sender.places.is_empty(), "no place is sent before the service has answered");
    carry(&mut service, &mut [&mut sender]);
    assert_eq!(sender.places.keys().map(|it| it.0).collect::<Vec<_>>(), [2, 4, 5]);
    assert!(sender.places.values().all(|place| place.receivers == 3 && place.first == 1));
    // Each node is where the network places it. The two nodes in the right rack are neighbors.
    let ring = |node: u64| sender.places[&NodeId(node)].leaf.ring;
    assert_eq!((ring(4), ring(5)), (7, 7));
    assert!(sender.engine.tree(sender.group).is_none(), "the service has it");
    let before = sender.epochs().into_iter().max();
    sender.change(6, ViewChangeKind::Joined);
    sender.change(2, ViewChangeKind::Left);
    carry(&mut service, &mut [&mut sender]);
    assert!(sender.places.contains_key(&NodeId(6)));
    assert!(sender.epochs().into_iter().max() > before);
    assert_eq!(service.groups().collect::<Vec<_>>(), [(sender.group, sender.id)]);
    let group = sender.group;
    sender.engine.leave(sender.now, group);
    carry(&mut service, &mut [&mut sender]);
    assert_eq!(service.groups().count(), 0, "the sender has closed its group");
}

#[test]
fn sender_that_loses_the_service_returns_with_higher_epochs() {
    let mut service = ManagerService::new(network(), 2);
    let mut sender = Sender::managed(1, &[2, 3, 4, 5]);
    carry(&mut service, &mut [&mut sender]);
    let told = sender.epochs();
    // Requests that are made before the loss is detected are not answered.
    sender.change(6, ViewChangeKind::Joined);
    sender.hear_manager(&ManagerNews::Lost);
    assert_eq!(sender.managed_by(), Some(ManagedBy::Sender));
    assert_eq!(sender.engine.counters().manager_lost, 1);
    let beside = sender.epochs();
    assert_eq!(beside.len(), 5, "the sender places all receivers");
    assert!(beside.iter().min() > told.iter().max(), "{beside:?} after {told:?}");
    assert!(sender.engine.tree(sender.group).is_some());
    assert_eq!(sender.requests().len(), 0, "the manager is unreachable");
    sender.hear_manager(&ManagerNews::Reached);
    assert_eq!(sender.managed_by(), Some(ManagedBy::Service));
    carry(&mut service, &mut [&mut sender]);
    let again = sender.epochs();
    assert!(again.iter().min() > beside.iter().max(), "{again:?} after {beside:?}");
}

#[test]
fn receiver_without_a_local_place_is_evicted_with_the_service() {
    let topology = Topology::racks(&[3]).expect("a rack");
    let hosts = (1..=3).map(|node| (NodeId(node), Vertex(node as u32 - 1))).collect();
    let local = Network::Known { topology: topology.into(), hosts };
    let mut service = ManagerService::new(network(), 6);
    let mut sender = Sender::in_network(local, 1, &[2, 3, 4]);
    sender.hear_manager(&ManagerNews::Reached);
    sender.send();
    carry(&mut service, &mut [&mut sender]);
    assert_eq!(sender.places.len(), 3);
    sender.hear_manager(&ManagerNews::Lost);
    let mut receivers = sender.engine.receivers(sender.group);
    receivers.retain(|(_, state)| state.evicted_at.is_some());
    assert_eq!(receivers.iter().map(|(node, _)| node.0).collect::<Vec<_>>(), [4]);
}

#[test]
fn late_answers_are_ignored_and_the_service_is_tried_again() {
    let mut service = ManagerService::new(network(), 3);
    let mut sender = Sender::managed(1, &[2, 3, 4]);
    let requests = sender.requests();
    sender.wait(299);
    assert_eq!(sender.managed_by(), Some(ManagedBy::Service));
    sender.wait(1);
    assert_eq!(sender.managed_by(), Some(ManagedBy::Sender));
    let places = sender.places.clone();
    assert_eq!(places.len(), 3);
    requests.iter().for_each(|it| service.handle(sender.now, sender.id, endpoint(1), it));
    let mut late = 0;
    while let Some((_, answer)) = service.poll_answer() {
        late += 1;
        sender.hear_manager(&ManagerNews::Answered(answer));
    }
    assert_eq!((sender.engine.counters().manager_late, &sender.places), (late, &places));
    carry(&mut service, &mut [&mut sender]);
    assert_eq!(service.groups().count(), 0, "the sender has closed its group");
    sender.live(10_000);
    assert_eq!(sender.managed_by(), Some(ManagedBy::Service), "tried again");
    carry(&mut service, &mut [&mut sender]);
    let least = sender.epochs().into_iter().min();
    assert!(least > places.values().map(|place| place.epoch).max());
}

#[test]
fn a_link_that_one_group_reports_is_avoided_by_the_other() {
    let mut service = ManagerService::new(network(), 4);
    let (mut first, mut second) = (Sender::managed(1, &[2, 4, 5]), Sender::managed(2, &[3, 5, 6]));
    carry(&mut service, &mut [&mut first, &mut second]);
    let links = |service: &ManagerService, sender: &Sender| -> Vec<LinkId> {
        service.trees().tree(sender.group).expect("it is open").links().collect()
    };
    let shared: Vec<LinkId> = links(&service, &first)
        .into_iter()
        .filter(|link| link.0 >= 6 && links(&service, &second).contains(link))
        .collect();
    assert_eq!(shared.len(), 2, "both use the same spine");
    // The tree reaches no receiver in the right rack, which the ring at the left rack notices.
    let proxy = [4, 5].into_iter().find(|node| {
        first.places[&NodeId(*node)].proxy.as_ref().is_some_and(|seat| seat.ring == 6)
    });
    let proxy = NodeId(proxy.expect("one of them stands for the right rack"));
    first.hear(2, &Packet::Cut { ring: 6, successor: proxy });
    assert_eq!(first.engine.counters().cuts_heard, 1);
    carry(&mut service, &mut [&mut first, &mut second]);
    let dead = service.trees().dead_links();
    assert!(shared.iter().all(|link| dead.contains(link)), "{shared:?} in {dead:?}");
    for sender in [&first, &second] {
        assert!(links(&service, sender).iter().all(|link| !dead.contains(link)));
        assert_eq!(sender.managed_by(), Some(ManagedBy::Service));
    }
    let mut third = Sender::managed(3, &[4, 6]);
    carry(&mut service, &mut [&mut third]);
    assert!(links(&service, &third).iter().all(|link| !dead.contains(link)));
    service.handle_timeout(Time(first.now.0 + 30_000 * MS));
    assert!(service.trees().dead_links().is_empty(), "they are tried again");
}

#[test]
fn refused_sender_continues_alone_and_counts_nonsense() {
    let mut sender = Sender::managed(1, &[2, 3]);
    let request = sender.requests().first().cloned().expect("it opens its group");
    let Request { group, opening, number, .. } = Request::decode(&request).expect("a request");
    sender.engine.handle_manager(sender.now, &ManagerNews::Answered(b"nonsense".to_vec()));
    assert_eq!(sender.engine.counters().manager_malformed, 1);
    assert_eq!(sender.managed_by(), Some(ManagedBy::Service));
    let refused = Answer { group, opening, number, result: Err(Refusal::NoManager) };
    sender.hear_manager(&ManagerNews::Answered(refused.encode()));
    assert_eq!(sender.managed_by(), Some(ManagedBy::Sender));
    assert_eq!(sender.places.len(), 2);
    sender.wait(20_000);
    assert_eq!(sender.requests().len(), 0, "there is no manager until it is reported");
    let elsewhere = Answer { group: GroupId(9), ..refused };
    sender.engine.handle_manager(sender.now, &ManagerNews::Answered(elsewhere.encode()));
    assert_eq!(sender.engine.counters().manager_late, 1);
}

#[test]
fn relay_tree_is_arranged_without_the_service() {
    let mut service = ManagerService::new(network(), 5);
    let mut sender = Sender::new(1, &[2, 3, 4, 5, 6]);
    let unreached = NetworkChange::Unreached((2..=6).map(NodeId).collect());
    sender.engine.handle_network(sender.now, &unreached);
    sender.hear_manager(&ManagerNews::Reached);
    sender.send();
    carry(&mut service, &mut [&mut sender]);
    let fed = |sender: &Sender| -> Vec<u64> {
        let roots = sender.engine.relays(sender.group).expect("it sends").roots();
        let below = sender.places.values().flat_map(|place| &place.relays);
        let mut fed: Vec<u64> = roots.iter().chain(below).map(|node| node.0).collect();
        fed.sort_unstable();
        fed
    };
    assert_eq!(fed(&sender), [2, 3, 4, 5, 6], "each gets one copy");
    let relay = sender.places.iter().find(|(_, place)| !place.relays.is_empty());
    let relay = *relay.expect("the sender sends to two of the five only").0;
    sender.change(relay.0, ViewChangeKind::Left);
    sender.places.remove(&relay);
    let left: Vec<u64> = (2..=6).filter(|node| *node != relay.0).collect();
    assert_eq!(sender.managed_by(), Some(ManagedBy::Service));
    assert_eq!(fed(&sender), left, "the service has not answered yet");
    carry(&mut service, &mut [&mut sender]);
    assert_eq!(fed(&sender), left);
    // The service gets no request if the relay tree does not reach a receiver.
    sender.requests();
    sender.hear(left[0], &Packet::Cut { ring: 7, successor: NodeId(left[1]) });
    assert_eq!((sender.engine.counters().cuts_heard, sender.requests().len()), (1, 0));
    let unreached = NetworkChange::Unreached([NodeId(left[0])].into());
    sender.engine.handle_network(sender.now, &unreached);
    sender.drain();
    assert_eq!((fed(&sender), sender.requests().len()), (vec![left[0]], 0));
}

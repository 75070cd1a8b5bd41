use super::*;
use crate::rdcm::Hosts;
use crate::rdcm::topology::Topology;

const GROUP: GroupId = GroupId(7);
const NOW: Time = Time(1_000_000_000);
/// The racks of [`service_with_racks`].
const LEFT: u32 = 0;
const RIGHT: u32 = 1;

fn endpoint(node: u64) -> Endpoint {
    Endpoint(([10, 0, 0, node as u8], 7400).into())
}

fn service() -> ManagerService {
    let topology = Topology::racks(&[2, 2]).and_then(Topology::with_visitors).expect("racks");
    let mut hosts = Hosts::default();
    (1..=4).for_each(|it| hosts.place_address(endpoint(it).0.ip(), None, Vertex(it as u32 - 1)));
    ManagerService::new(Network::Known { topology: topology.into(), hosts }, 1)
}

impl ManagerService {
    fn ask(&mut self, from: u64, number: u32, command: Command) -> Vec<Answer> {
        let request = Request { group: GROUP, opening: 1, number, command };
        self.handle(NOW, NodeId(from), endpoint(from), &request.encode());
        self.check();
        let answers = core::iter::from_fn(|| self.poll_answer());
        answers.map(|(_, bytes)| Answer::decode(&bytes).expect("an answer")).collect()
    }
}

fn open(above: u32) -> Command {
    Command::Open { above, most_children: 128 }
}

fn join(nodes: &[u64]) -> Command {
    Command::Join(nodes.iter().map(|node| (NodeId(*node), endpoint(*node))).collect())
}

fn placed(answers: &[Answer]) -> Vec<(u64, u32)> {
    let changes = answers.iter().flat_map(|answer| match &answer.result {
        Ok(changes) => &changes[..],
        Err(refusal) => panic!("{refusal}"),
    });
    let epoch = |change: &PlaceChange| change.place.as_ref().map_or(0, |place| place.epoch);
    changes.map(|change| (change.receiver.0, epoch(change))).collect()
}

fn refusal(answers: &[Answer]) -> Option<Refusal> {
    match answers {
        [Answer { result: Err(refusal), .. }] => Some(*refusal),
        _ => None,
    }
}

#[test]
fn every_request_returns_the_changed_places_above_the_epoch() {
    let mut service = service();
    let opened = service.ask(1, 1, open(41));
    assert_eq!((opened.len(), opened[0].number, placed(&opened)), (1, 1, Vec::new()));
    assert_eq!(placed(&service.ask(1, 2, join(&[2, 3, 9]))), [(2, 42), (3, 42), (9, 42)]);
    let left = service.ask(1, 3, Command::Leave(NodeId(3)));
    assert_eq!(left[0].number, 3);
    assert!(placed(&left).iter().all(|(node, epoch)| *node != 3 && *epoch == 43), "{left:?}");
    assert_eq!(service.ask(1, 4, Command::Close), []);
    assert_eq!(service.groups().count(), 0);
    assert_eq!(refusal(&service.ask(1, 5, join(&[2]))), Some(Refusal::Unknown));
}

#[test]
fn one_sender_has_a_group_until_it_is_gone() {
    let mut service = service();
    assert_eq!(placed(&service.ask(1, 1, open(0))), []);
    assert_eq!(refusal(&service.ask(2, 1, open(0))), Some(Refusal::HasSender));
    assert_eq!(refusal(&service.ask(2, 2, join(&[3]))), Some(Refusal::Unknown));
    service.ask(1, 2, join(&[2, 3]));
    assert_eq!(placed(&service.ask(1, 3, open(9))), []);
    assert_eq!(placed(&service.ask(1, 4, join(&[2]))), [(2, 10)]);
    service.forget(NodeId(1));
    assert_eq!(placed(&service.ask(2, 3, open(0))), []);
    service.give_up();
    let told = service.poll_answer().map(|(to, bytes)| (to, Answer::decode(&bytes)));
    let (to, answer) = told.expect("the sender is told");
    let result = Err(Refusal::NoManager);
    assert_eq!((to, answer.map(|it| it.result)), (NodeId(2), Ok(result)));
    assert_eq!(service.groups().count(), 0);
}

#[test]
fn malformed_and_unfit_requests_are_counted_and_refused() {
    let mut service = service();
    service.handle(NOW, NodeId(1), endpoint(1), b"no request");
    assert_eq!((service.counters().requests_malformed, service.poll_answer()), (1, None));
    let narrow = Command::Open { above: 0, most_children: 63 };
    assert_eq!(refusal(&service.ask(1, 1, narrow)), Some(Refusal::Ports));
    service.ask(1, 2, open(0));
    // Reports on rings and nodes that do not exist mark no links as dead.
    for (ring, successor) in [(4, 2), (0, 3), (u32::MAX, 77)] {
        service.ask(1, 3, Command::Cut { ring, successor: NodeId(successor) });
    }
    assert_eq!((service.counters().cuts, service.counters().links_found_dead), (3, 0));
    service.ask(1, 4, join(&[1]));
    assert_eq!(placed(&service.ask(1, 5, join(&[2]))), [(2, 1)]);
}

/// Two racks with one host each, which two switches connect.
fn service_with_two_paths() -> ManagerService {
    service_with_racks(&[LEFT, RIGHT])
}

/// Returns the service of a network of two racks with a path over each of the switches one and two.
/// `racks` are those of the hosts a, b, and so on, which are nodes 1, 2, and so on.
fn service_with_racks(racks: &[u32]) -> ManagerService {
    let hosts = racks.len() as u32;
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let switches = names(&["left", "right", "one", "two"]);
    let mut topology =
        Topology::new(names(&["a", "b", "c"][..racks.len()]), switches, false).expect("a topology");
    let of_hosts = (0..).zip(racks).map(|(host, rack)| (host, hosts + rack));
    let uplinks = [(LEFT, 2), (LEFT, 3), (RIGHT, 2), (RIGHT, 3)];
    let uplinks = uplinks.map(|(from, to)| (hosts + from, hosts + to));
    for (from, to) in of_hosts.chain(uplinks) {
        topology.link(Vertex(from), Vertex(to)).expect("a link");
    }
    let hosts = (0..hosts).map(|host| (NodeId(u64::from(host) + 1), Vertex(host)));
    let hosts = Hosts::from_iter(hosts);
    ManagerService::new(Network::Known { topology: topology.into(), hosts }, 1)
}

/// Returns a function that reports node 2 as cut off in `ring`, and returns the number of links
/// that were found dead so far.
fn cuts(ring: u32) -> impl FnMut(&mut ManagerService, Time) -> u64 {
    let mut number = 2;
    move |service, now| {
        number += 1;
        let command = Command::Cut { ring, successor: NodeId(2) };
        let request = Request { group: GROUP, opening: 1, number, command };
        service.handle(now, NodeId(1), endpoint(1), &request.encode());
        service.counters().links_found_dead
    }
}

impl ManagerService {
    fn spine(&self) -> String {
        let tree = self.trees().tree(GROUP).expect("an open group");
        let above = tree.above(Vertex(3)).expect("the rack is in the tree");
        self.trees().topology().name(above.vertex).to_owned()
    }
}

#[test]
fn reported_link_leaves_all_trees_until_it_is_up() {
    let mut service = service_with_two_paths();
    service.ask(1, 1, open(0));
    service.ask(1, 2, join(&[2]));
    assert_eq!(service.spine(), "one");
    assert_eq!(service.report_link(NOW, ["right", "one"], LinkState::Down), Ok(1));
    assert_eq!((service.spine(), service.trees().dead_links().len()), ("two".into(), 1));
    service.handle_timeout(NOW + Duration::from_secs(3600));
    assert_eq!(service.trees().down_links().len(), 1, "time does not end a report");
    // With both paths down, the tree uses one of them, and returns when the other is up.
    assert_eq!(service.report_link(NOW, ["two", "right"], LinkState::Down), Ok(1));
    assert_eq!(service.report_link(NOW, ["one", "right"], LinkState::Up), Ok(1));
    assert_eq!((service.spine(), service.trees().dead_links().len()), ("one".into(), 1));
    assert_eq!(service.report_link(NOW, ["two", "right"], LinkState::Up), Ok(1));
    assert_eq!((service.spine(), service.trees().dead_links().len()), ("one".into(), 0));
    assert_eq!(service.counters().links_reported, 4);
    let unknown = service.report_link(NOW, ["one", "three"], LinkState::Down);
    assert_eq!(unknown, Err(LinkReportError::Unknown("three".into())));
    let not_linked = service.report_link(NOW, ["one", "two"], LinkState::Down);
    assert_eq!(not_linked, Err(LinkReportError::NotLinked("one".into(), "two".into())));
}

#[test]
fn cuts_are_ignored_until_the_network_has_the_tree() {
    let mut service = service_with_racks(&[LEFT, RIGHT, LEFT]);
    service.install_trees();
    service.ask(1, 1, open(0));
    service.ask(1, 2, join(&[2, 3]));
    let mut cut = cuts(3);
    assert_eq!(cut(&mut service, NOW), 0, "the command has not started");
    let gathered = NOW + Duration::from_millis(100);
    service.poll_tree(gathered).expect("a tree");
    assert_eq!(cut(&mut service, gathered), 0, "the command runs");
    service.handle_installed(gathered, GROUP, Ok(()));
    assert_eq!(cut(&mut service, gathered), 0, "receivers have just begun to observe the tree");
    assert!(cut(&mut service, gathered + Duration::from_secs(1)) > 0);
}

#[test]
fn cuts_below_links_that_are_being_installed_are_ignored() {
    let mut service = service_with_racks(&[LEFT, RIGHT, RIGHT]);
    service.install_trees();
    service.ask(1, 1, open(0));
    service.ask(1, 2, join(&[2, 3]));
    assert_eq!(service.poll_tree(NOW), None, "more receivers may join");
    let gathered = NOW + Duration::from_millis(100);
    service.poll_tree(gathered).expect("a tree");
    service.handle_installed(gathered, GROUP, Ok(()));
    let mut cut = cuts(4);
    let later = gathered + Duration::from_secs(10);
    service.report_link(later, ["one", "left"], LinkState::Down).expect("a link");
    let later = later + Duration::from_secs(1);
    assert_eq!(cut(&mut service, later), 0, "the links above the receivers are not installed");
    service.poll_tree(later).expect("a tree over the other switch");
    assert_eq!(cut(&mut service, later), 0, "the command runs");
    service.report_link(later, ["one", "left"], LinkState::Up).expect("a link");
    service.report_link(later, ["two", "left"], LinkState::Down).expect("a link");
    let later = later + Duration::from_secs(1);
    assert_eq!(cut(&mut service, later), 0, "the command removes the links of the former tree");
    service.handle_installed(later, GROUP, Ok(()));
    assert_eq!(cut(&mut service, later), 0, "the first tree is to be installed again");
    service.poll_tree(later).expect("the first tree");
    service.handle_installed(later, GROUP, Ok(()));
    assert_eq!(cut(&mut service, later + Duration::from_secs(1)), 1);
}

#[test]
fn driver_is_given_each_tree_that_a_report_moves() {
    let mut service = service_with_two_paths();
    service.install_trees();
    service.ask(1, 1, open(0));
    assert_eq!(service.poll_tree(NOW), None, "a tree without receivers has no links");
    service.ask(1, 2, join(&[2]));
    assert_eq!(service.poll_tree(NOW), None, "more receivers may join");
    let gathered = service.poll_timeout().expect("a tree is due");
    let first = service.poll_tree(gathered).expect("a tree");
    assert_eq!((first.links.len(), first.added.len(), first.removed.len()), (4, 4, 0));
    let members = (first.sender.map(|it| it.node), first.receivers[0].node);
    assert_eq!(members, (Some(NodeId(1)), NodeId(2)));
    service.report_link(NOW, ["one", "left"], LinkState::Down).expect("a link");
    assert_eq!(service.poll_tree(gathered), None, "the first command still runs");
    service.handle_installed(gathered, GROUP, Ok(()));
    let second = service.poll_tree(gathered).expect("the moved tree");
    assert_eq!((second.links.len(), second.added.len(), second.removed.len()), (4, 2, 2));
    service.handle_installed(gathered, GROUP, Err("the switch is away".into()));
    let counters = service.counters();
    assert_eq!((counters.trees_installed, counters.trees_not_installed), (1, 1));
    let retry = service.poll_timeout().expect("it is tried again");
    assert_eq!(service.poll_tree(retry).map(|it| it.added), Some(second.added));
}

#[test]
fn group_that_opens_again_keeps_its_installed_tree() {
    let mut service = service_with_two_paths();
    service.install_trees();
    service.ask(1, 1, open(0));
    service.ask(1, 2, join(&[2]));
    assert_eq!(service.poll_tree(NOW), None, "more receivers may join");
    let gathered = NOW + Duration::from_millis(100);
    let first = service.poll_tree(gathered).expect("a tree");
    service.handle_installed(gathered, GROUP, Ok(()));
    service.forget(NodeId(1));
    assert_eq!(service.poll_tree(gathered), None, "the sender may return");
    service.ask(1, 1, open(9));
    assert_eq!(service.poll_tree(gathered), None, "its receivers have not joined again");
    service.ask(1, 2, join(&[2]));
    assert_eq!(service.poll_tree(gathered), None, "more receivers may join");
    let due = gathered + Duration::from_millis(100);
    let again = service.poll_tree(due).expect("the same tree");
    assert_eq!((again.links, again.removed.len()), (first.links, 0));
}

use super::*;
use crate::rdcm::Hosts;
use crate::rdcm::topology::Topology;

const GROUP: GroupId = GroupId(7);
const NOW: Time = Time(1_000_000_000);

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

//! Tests the multicast manager of the registry: how nodes reach it, and how it moves.

use std::iter;

use carom_proto::membership::ManagerNews;
use carom_proto::membership::service::ServerConfig;
use carom_proto::rdcm::manager::PlaceChange;
use carom_proto::rdcm::manager::messages::{Answer, Command, Refusal, Request};
use carom_proto::rdcm::topology::{Topology, Vertex};
use carom_proto::rdcm::{Hosts, Network};
use carom_proto::{Endpoint, GroupId, GroupSettings, NodeId, Profile};

use super::{Rig, endpoint, group, millis, node_id, partition, seconds};

const BULK: GroupSettings = GroupSettings { profile: Profile::Bulk, name_check: 7 };

fn network() -> Network {
    let topology = Topology::racks(&[2, 2]).and_then(Topology::with_visitors).expect("racks");
    let mut hosts = Hosts::default();
    (0..4).for_each(|it| hosts.place_address(endpoint(it).0.ip(), None, Vertex(it as u32)));
    Network::Known { topology: topology.into(), hosts }
}

fn rig(config: ServerConfig) -> (Rig, GroupId) {
    let bulk = (0..4).map(group).find(|it| partition(*it) == 1).expect("one of four");
    let mut rig = Rig::with_registry(2, config, 61);
    for node in 0..3 {
        rig.add_node();
        rig.join(node, bulk, BULK).expect("a new group");
    }
    assert!(rig.run_until(seconds(5), Rig::agrees));
    rig.run_for(millis(50));
    assert_ne!(rig.owner(0), rig.owner(1), "they share the partitions");
    (rig, bulk)
}

fn news(rig: &mut Rig, node: usize) -> Vec<ManagerNews> {
    rig.with(node, |node, _| iter::from_fn(|| node.membership.poll_manager()).collect())
}

fn ask(
    rig: &mut Rig,
    node: usize,
    group: GroupId,
    number: u32,
    command: Command,
) -> Vec<Result<Vec<PlaceChange>, Refusal>> {
    let request = Request { group, opening: 1, number, command }.encode();
    rig.with(node, |node, _| node.membership.ask_manager(request));
    rig.run_for(millis(20));
    rig.check();
    let results = news(rig, node).into_iter().map(|news| match news {
        ManagerNews::Answered(bytes) => Answer::decode(&bytes).expect("an answer").result,
        other => panic!("{other:?}"),
    });
    results.collect()
}

fn join(nodes: [usize; 2]) -> Command {
    let unknown = Endpoint(([0, 0, 0, 0], 0).into());
    Command::Join(nodes.map(|node| (node_id(node), unknown)).into())
}

fn placed(results: &[Result<Vec<PlaceChange>, Refusal>]) -> Vec<NodeId> {
    let [Ok(changes)] = results else { panic!("{results:?}") };
    let mut nodes: Vec<NodeId> = changes.iter().map(|change| change.receiver).collect();
    nodes.sort_unstable();
    nodes
}

const OPEN: Command = Command::Open { above: 0, most_children: 128 };

#[test]
fn manager_moves_with_its_partition_and_is_lost_then_reached() {
    let (mut rig, bulk) = rig(ServerConfig { network: Some(network()), ..super::default() });
    assert_eq!(news(&mut rig, 0), [ManagerNews::Reached]);
    assert_eq!(placed(&ask(&mut rig, 0, bulk, 1, OPEN)), []);
    let mut both = [node_id(1), node_id(2)];
    both.sort_unstable();
    assert_eq!(placed(&ask(&mut rig, 0, bulk, 2, join([1, 2]))), both);
    let groups = |rig: &Rig, process: usize| {
        rig.server(process).manager().expect("it knows the network").groups().count()
    };
    let (first, second) = (rig.owner(0), rig.owner(1));
    assert_eq!([first, second].map(|process| groups(&rig, process)), [1, 0]);
    rig.give(0, second);
    rig.run_for(millis(50));
    assert_eq!(news(&mut rig, 0), [ManagerNews::Lost, ManagerNews::Reached]);
    assert_eq!(placed(&ask(&mut rig, 0, bulk, 3, OPEN)), []);
    assert_eq!(groups(&rig, second), 1);
    // A node that is gone sends nothing more.
    rig.shut_down(0);
    rig.run_for(millis(50));
    assert_eq!(groups(&rig, second), 0);
    assert_eq!(news(&mut rig, 1), [ManagerNews::Reached], "it requests it now, and not before");
    rig.kill(second);
    rig.run_for(millis(50));
    assert_eq!(news(&mut rig, 1), [ManagerNews::Lost]);
}

#[test]
fn service_without_a_network_refuses_placement() {
    let (mut rig, bulk) = rig(super::default());
    assert_eq!(news(&mut rig, 0), [ManagerNews::Reached]);
    let refused = [Err(Refusal::NoManager)];
    assert_eq!(ask(&mut rig, 0, bulk, 1, OPEN), refused);
    let first = rig.owner(0);
    rig.with(0, |node, _| node.membership.ask_manager(b"nonsense".to_vec()));
    rig.run_for(millis(20));
    assert_eq!((rig.process_stat(first, "manage_malformed"), news(&mut rig, 0)), (1, Vec::new()));
}

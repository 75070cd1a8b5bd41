//! Tests the registry: nodes, registry processes and a failing store.

mod addresses;
mod managing;
mod owners;
mod processes;
mod random;
mod refusals;
mod sessions;
mod store;
mod views;

use std::collections::{BTreeMap, BTreeSet};

use carom_conformance::providers::Store;
use carom_proto::membership::service::frame::partition_of;
use carom_proto::membership::service::{
    Frame, Member, Server, ServerConfig, Service, ServiceConfig,
};
use carom_proto::{GroupId, GroupSettings, Incarnation, NodeId, Origin, Profile, RateOfFire};

use super::rig::{Rig, START, counter, endpoint, ix, millis, node_id, seconds, unknown_endpoint};

const PARTITIONS: u16 = 4;
const NODES: usize = 16;
const DETECTORS: usize = 2;

fn address(process: usize) -> carom_proto::Endpoint {
    endpoint(NODES + process)
}

fn group(number: usize) -> GroupId {
    GroupId(number as u32 + 1)
}

fn settings(r: u8) -> GroupSettings {
    let profile = Profile::TimeCritical(RateOfFire::new(r, 5));
    GroupSettings { profile, name_check: 7 }
}

fn partition(group: GroupId) -> u16 {
    partition_of(group, PARTITIONS)
}

fn member(node: NodeId, host: usize) -> Member {
    Member { node, incarnation: 0, start: Incarnation(0), endpoint: endpoint(host) }
}

fn encoded(frame: &Frame) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    bytes
}

fn default() -> ServerConfig {
    ServerConfig::default()
}

fn agreed(processes: usize, nodes: usize, groups: usize, config: ServerConfig, seed: u64) -> Rig {
    let mut rig = Rig::with_registry(processes, config, seed);
    for node in 0..nodes {
        assert_eq!(rig.add_node(), node);
        (0..groups).for_each(|it| rig.join_group(node, group(it)));
    }
    assert!(rig.run_until(seconds(5), Rig::has_recovered), "no agreement, seed {seed}");
    rig.check();
    rig
}

impl Rig {
    pub(crate) fn with_registry(processes: usize, config: ServerConfig, seed: u64) -> Self {
        let mut rig = Self::new(NODES + processes + 1 + DETECTORS, 0.0, seed);
        rig.start_registry(NODES, processes, ServerConfig { partitions: PARTITIONS, ..config });
        rig
    }

    pub(crate) fn service_config(&self) -> ServiceConfig {
        let addresses = self.services.as_ref().expect("a registry").addresses();
        ServiceConfig { addresses, ..ServiceConfig::default() }
    }

    pub(crate) fn add_node(&mut self) -> usize {
        self.add_node_with(self.service_config())
    }

    pub(crate) fn add_node_with(&mut self, config: ServiceConfig) -> usize {
        self.add_start(node_id(self.nodes).into(), config)
    }

    fn restart(&mut self, node: usize, incarnation: Incarnation) -> usize {
        self.crash(node);
        self.add_start(Origin { node: node_id(node), incarnation }, self.service_config())
    }

    fn add_start(&mut self, origin: Origin, config: ServiceConfig) -> usize {
        let seed = self.rng.next_u64();
        self.add(origin.node, Service::new(origin, unknown_endpoint(), config, seed))
    }

    pub(crate) fn join_group(&mut self, node: usize, group: GroupId) {
        self.join(node, group, settings(8)).expect("the node is not in the group");
    }

    fn kill(&mut self, process: usize) {
        self.services.as_mut().expect("a registry").kill(&mut self.world, process);
    }

    fn start_process(&mut self, process: usize) {
        self.services.as_mut().expect("a registry").start(&mut self.world, process);
    }

    pub(crate) fn give(&mut self, partition: u16, process: usize) {
        let services = self.services.as_mut().expect("a registry");
        services.hand_over(&self.world, partition, process);
    }

    fn owner(&self, partition: u16) -> usize {
        self.services.as_ref().and_then(|it| it.owner(partition)).expect("an owner")
    }

    fn store(&mut self) -> &mut Store {
        self.services.as_mut().expect("a registry").store_mut()
    }

    fn running(&self, process: usize) -> Option<&Server> {
        self.services.as_ref()?.server(&self.world, process)
    }

    pub(crate) fn server(&self, process: usize) -> &Server {
        self.running(process).expect("the process is alive")
    }

    pub(crate) fn process_stat(&self, process: usize, name: &str) -> u64 {
        counter(&self.server(process).stats(), name)
    }

    pub(crate) fn agrees(&self) -> bool {
        let mut members: BTreeMap<GroupId, BTreeSet<NodeId>> = BTreeMap::new();
        for node in self.live() {
            for group in node.views.keys() {
                members.entry(*group).or_default().insert(node.id);
            }
        }
        let services = self.services.as_ref().expect("a registry");
        services.store().members() == members
            && self.live().all(|node| {
                node.views.iter().all(|(group, view)| {
                    let others = members[group].iter().filter(|other| **other != node.id);
                    view.members().iter().eq(others)
                })
            })
    }

    fn all_settled(&self) -> bool {
        self.live().all(|node| node.membership.is_settled())
    }

    fn has_recovered(&self) -> bool {
        self.agrees() && self.all_settled()
    }

    fn incarnation(&self, node: usize) -> u64 {
        self.stat(node, "incarnation")
    }
}

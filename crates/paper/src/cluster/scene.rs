//! A group in a simulated data center.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use carom_conformance::rdcm::cluster;
use carom_proto::rdcm::topology::{LinkId, Vertex};
use carom_proto::rdcm::tree::MulticastTree;
use carom_proto::{
    Event, GroupId, GroupSettings, SendError, SendOptions, Time, ViewChange, ViewChangeKind,
};
use carom_sim::{Happening, HostIx, World, WorldConfig};

use super::plane::{GROUP, Plane, node_of};
use super::protocol::{Maker, Protocol};
use super::rider::Rider;
use crate::work::Env;

pub(crate) struct Scene {
    pub(crate) world: World<Rider>,
    pub(crate) plane: Plane,
    payload: Bytes,
    idle_at: Time,
    given_bytes: u64,
    pub(crate) trees: u32,
    protocol: Protocol,
    members: BTreeSet<u32>,
    /// Version of the last change of the members.
    version: u32,
}

const MOST_TO_BEGIN: Duration = Duration::from_secs(20);
const TO_SETTLE: Duration = Duration::from_millis(20);
pub(super) const SLICE: Duration = Duration::from_micros(50);

/// Confines multicasts to these groups to the links of the group's tree, for every sender.
fn keep_to_the_tree(
    world: &mut World<Rider>,
    plane: &Plane,
    listeners: &BTreeMap<GroupId, BTreeSet<Vertex>>,
) {
    let links: BTreeSet<LinkId> = plane.tree.links().collect();
    let all = (0..plane.cluster.links().len() as u32).map(LinkId);
    let others: BTreeSet<LinkId> = all.filter(|link| !links.contains(link)).collect();
    for (group, listeners) in listeners {
        for from in listeners {
            let (tree, _) = MulticastTree::shortest(&plane.cluster, &others, *from, listeners);
            cluster::set_tree(world, &plane.cluster, *group, &tree);
        }
    }
}

fn introduce(world: &mut World<Rider>, protocol: Protocol, host: u32, members: &BTreeSet<u32>) {
    let settings = GroupSettings { profile: protocol.profile(), name_check: 0 };
    let others = members.iter().filter(|member| **member != host);
    world.with(HostIx(host), |rider, now| {
        rider.ridden.engine_mut().join(now, GROUP, settings).expect("it carries such groups");
        for (version, member) in (1..).zip(others) {
            let (node, kind) = (node_of(*member), ViewChangeKind::Joined);
            let change = ViewChange { group: GROUP, node, kind, version };
            rider.ridden.engine_mut().handle_view(now, &change);
        }
    });
}

impl Scene {
    pub(crate) fn new(mut plane: Plane, protocol: Protocol, is_tallied: bool) -> Self {
        let topology = cluster::topology(&plane.cluster, |link| plane.link(link));
        let config = WorldConfig {
            hashes_history: false,
            checks: false,
            ..WorldConfig::new(topology, plane.rng.next_u64())
        };
        let mut world = World::new(config);
        let members: BTreeSet<u32> = plane.receivers().chain([plane.sender()]).collect();
        let seeds: Vec<u64> = members.iter().map(|_| plane.rng.next_u64()).collect();
        let maker = Maker::new(protocol, &plane);
        let mut listeners: BTreeMap<GroupId, BTreeSet<Vertex>> = BTreeMap::new();
        for (host, seed) in members.iter().zip(seeds) {
            let node = node_of(*host);
            let rider = Rider::new(protocol, maker.engine(node, seed), is_tallied);
            world.spawn(HostIx(*host), node, rider);
            for group in maker.scopes(node).into_iter().chain([GROUP]) {
                world.subscribe(HostIx(*host), group);
                listeners.entry(group).or_default().insert(Vertex(*host));
            }
        }
        if protocol.keeps_to_the_tree() {
            keep_to_the_tree(&mut world, &plane, &listeners);
        }
        for host in &members {
            introduce(&mut world, protocol, *host, &members);
        }
        cluster::set_tree(&mut world, &plane.cluster, GROUP, &plane.tree);
        let version = members.len() as u32;
        let payload = Bytes::from(vec![0x5A; plane.setting.payload_bytes]);
        let idle_at = world.now();
        Self {
            world,
            plane,
            payload,
            idle_at,
            given_bytes: 0,
            trees: 0,
            protocol,
            members,
            version,
        }
    }

    /// Returns the time at which the sender's interface has transmitted everything handed to it.
    /// The application sends as fast as this permits. All links of the sender count as one.
    pub(crate) fn idle_at(&mut self) -> Time {
        let sender = self.world.machine(HostIx(self.plane.sender()));
        let given = sender.expect("the sender stays").sent_bytes;
        let bytes = given - self.given_bytes;
        self.given_bytes = given;
        let nanos = 8 * bytes * 1_000_000_000 / self.plane.setting.bits_per_second;
        let now = self.world.now();
        self.idle_at = self.idle_at.max(now) + Duration::from_nanos(nanos);
        self.idle_at
    }

    /// Advances to `end`, and then switches the multicasts to the tree of the protocol's choice.
    pub(crate) fn run_until(&mut self, end: Time, note: &mut impl FnMut(&Happening<Event>)) {
        self.world.run_until(end, &mut |happening| note(&happening));
        let sender = self.world.machine(HostIx(self.plane.sender()));
        let tree = sender
            .and_then(|rider| rider.ridden.tree())
            .filter(|tree| **tree != self.plane.tree)
            .cloned();
        if let Some(tree) = tree {
            cluster::set_tree(&mut self.world, &self.plane.cluster, GROUP, &tree);
            self.plane.tree = tree;
            self.trees += 1;
        }
    }

    /// Prepares the group: sends a message and waits until all receivers have it. Returns `None` if
    /// the run is ended early, and panics if the receivers do not get the message in time.
    pub(crate) fn begin(&mut self, env: Env<'_>) -> Option<()> {
        let mut lacking: BTreeSet<HostIx> = self.plane.receivers().map(HostIx).collect();
        let end = self.world.now() + MOST_TO_BEGIN;
        self.send().expect("nothing is in flight");
        while !lacking.is_empty() {
            assert!(self.world.now() < end, "{} receivers lack the first message", lacking.len());
            if env.ends() {
                return None;
            }
            let next = self.world.now() + SLICE;
            self.run_until(next, &mut |happening| {
                if let Event::Message(_) = happening.event {
                    lacking.remove(&happening.host);
                }
            });
        }
        let settled = self.world.now() + TO_SETTLE;
        self.run_until(settled, &mut |_| {});
        self.idle_at();
        self.idle_at = settled;
        Some(())
    }

    /// Lets a receiver leave the group. All others learn of it at once.
    pub(crate) fn leave(&mut self, host: u32) {
        self.world.with(HostIx(host), |rider, now| {
            rider.ridden.engine_mut().leave(now, GROUP);
        });
        self.world.unsubscribe(HostIx(host), GROUP);
        self.members.remove(&host);
        self.notify(host, ViewChangeKind::Left);
    }

    /// Lets a host join the group, which only protocols without fixed domains support. All members
    /// learn of it at once.
    pub(crate) fn join(&mut self, host: u32) {
        let (node, seed) = (node_of(host), self.plane.rng.next_u64());
        let engine = Maker::new(self.protocol, &self.plane).engine(node, seed);
        self.world.spawn(HostIx(host), node, Rider::new(self.protocol, engine, true));
        self.world.subscribe(HostIx(host), GROUP);
        self.members.insert(host);
        introduce(&mut self.world, self.protocol, host, &self.members);
        self.notify(host, ViewChangeKind::Joined);
    }

    fn notify(&mut self, changed: u32, kind: ViewChangeKind) {
        self.version += 1;
        let change =
            ViewChange { group: GROUP, node: node_of(changed), kind, version: self.version };
        for host in self.members.iter().filter(|host| **host != changed) {
            self.world.with(HostIx(*host), |rider, now| {
                rider.ridden.engine_mut().handle_view(now, &change);
            });
        }
    }

    pub(crate) fn send(&mut self) -> Result<(), SendError> {
        let (payload, options) = (self.payload.clone(), SendOptions::default());
        let sender = HostIx(self.plane.sender());
        let sent = self.world.with(sender, |rider, now| {
            rider.ridden.engine_mut().send(now, GROUP, payload, options)
        });
        sent.expect("the sender stays").map(|_| ())
    }
}

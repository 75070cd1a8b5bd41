//! The nodes of the rig: their inputs, the datagrams and connections that reach them, and their
//! outputs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use carom_proto::membership::link::{LinkCommand, LinkEvent};
use carom_proto::membership::service::*;
use carom_proto::membership::{Membership, MembershipEvent};
use carom_proto::*;

use super::link::Link;
use super::{Happening, Rig, address, endpoint, node_id, settings};

/// One node, with the events of its provider so far.
pub(crate) struct Host {
    pub(crate) service: Service,
    pub(crate) id: NodeId,
    /// Crashed for good.
    pub(crate) is_crashed: bool,
    /// Paused. Events wait.
    pub(crate) is_paused: bool,
    /// Neither sends nor receives datagrams.
    pub(crate) is_deaf: bool,
    pub(crate) groups: BTreeSet<GroupId>,
    pub(crate) views: BTreeMap<GroupId, View>,
    pub(crate) changes: Vec<ViewChange>,
    pub(crate) refused: Vec<(GroupId, JoinError)>,
    pub(crate) settled_at: Option<Time>,
    pub(crate) is_away: bool,
    met: BTreeMap<NodeId, Endpoint>,
    pub(super) waiting: VecDeque<Happening>,
}

impl Rig {
    /// Adds a node with the addresses of all processes.
    pub(crate) fn add_node(&mut self) -> usize {
        let addresses = (0..self.processes.len()).map(address).collect();
        self.add_node_with(ServiceConfig { addresses, ..ServiceConfig::default() })
    }

    pub(crate) fn add_node_with(&mut self, config: ServiceConfig) -> usize {
        self.add(node_id(self.nodes.len()).into(), config)
    }

    /// Crashes a node, and starts it again elsewhere under its id, in no group.
    pub(crate) fn restart(&mut self, node: usize, incarnation: Incarnation) -> usize {
        self.nodes[node].is_crashed = true;
        let addresses = (0..self.processes.len()).map(address).collect();
        let origin = Origin { node: self.nodes[node].id, incarnation };
        self.add(origin, ServiceConfig { addresses, ..ServiceConfig::default() })
    }

    fn add(&mut self, origin: Origin, config: ServiceConfig) -> usize {
        let node = self.nodes.len();
        let bound = Endpoint(SocketAddr::from(([0, 0, 0, 0], 7400)));
        let service = Service::new(origin, bound, config, self.rng.next_u64());
        self.nodes.push(Host {
            service,
            id: origin.node,
            is_crashed: false,
            is_paused: false,
            is_deaf: false,
            groups: BTreeSet::new(),
            views: BTreeMap::new(),
            changes: Vec::new(),
            refused: Vec::new(),
            settled_at: None,
            is_away: false,
            met: BTreeMap::new(),
            waiting: VecDeque::new(),
        });
        node
    }

    pub(crate) fn join(&mut self, node: usize, group: GroupId) {
        self.join_with(node, group, settings(8)).expect("the node is not in the group");
    }

    pub(crate) fn join_with(
        &mut self,
        node: usize,
        group: GroupId,
        settings: GroupSettings,
    ) -> Result<(), JoinError> {
        let host = &mut self.nodes[node];
        host.service.join(self.now, group, settings)?;
        host.groups.insert(group);
        host.views.insert(group, View::default());
        self.drain_node(node);
        Ok(())
    }

    pub(crate) fn leave(&mut self, node: usize, group: GroupId) {
        let host = &mut self.nodes[node];
        host.service.leave(self.now, group);
        host.groups.remove(&group);
        host.views.remove(&group);
        self.drain_node(node);
    }

    /// Changes the address of the node.
    pub(crate) fn move_to(&mut self, node: usize, endpoint: Endpoint) {
        assert!(self.nodes[node].service.set_endpoint(self.now, endpoint), "nobody is told");
        self.drain_node(node);
    }

    pub(crate) fn shut_down(&mut self, node: usize) {
        self.nodes[node].service.shut_down(self.now);
        self.drain_node(node);
        self.nodes[node].is_crashed = true;
    }

    pub(crate) fn resume(&mut self, node: usize) {
        self.nodes[node].is_paused = false;
        while let Some(happening) = self.nodes[node].waiting.pop_front() {
            self.happen(happening);
        }
    }

    pub(super) fn happen_at_node(&mut self, node: usize, happening: Happening) {
        let (now, service) = (self.now, &mut self.nodes[node].service);
        match happening {
            Happening::Opened(link) => {
                service.handle_link(now, self.links[link].at_node, LinkEvent::Opened);
            }
            Happening::ToNode(link, bytes) => {
                let at_node = self.links[link].at_node;
                service.handle_link(now, at_node, LinkEvent::Received(&bytes));
            }
            Happening::EndAtNode(link, why) => {
                service.handle_link(now, self.links[link].at_node, LinkEvent::Closed { why });
            }
            Happening::Datagram(source, _, datagram) => {
                service.handle_datagram(now, source, &datagram);
            }
            _ => unreachable!("the others happen at a process"),
        }
        self.drain_node(node);
    }

    pub(crate) fn drain_node(&mut self, node: usize) {
        while let Some(command) = self.nodes[node].service.poll_link() {
            match command {
                LinkCommand::Open { link, to } => {
                    let process = (0..self.processes.len()).find(|it| address(*it) == to);
                    self.links.push(Link {
                        node,
                        process: process.expect("nodes know the processes' addresses"),
                        at_node: link,
                        at_process: None,
                        is_open: true,
                        to_node: FrameReader::default(),
                        last_arrivals: [self.now; 2],
                    });
                    let link = self.links.len() - 1;
                    self.schedule(link, 0, Happening::Connect(link));
                }
                LinkCommand::Send { link, bytes } => {
                    let Some(link) = self.link_of(node, link) else { continue };
                    self.schedule(link, 0, Happening::ToProcess(link, bytes));
                }
                LinkCommand::Close { link } => {
                    let Some(link) = self.link_of(node, link) else { continue };
                    self.schedule(link, 0, Happening::EndAtProcess(link));
                }
            }
        }
        let mut datagram = Vec::new();
        while let Some(transmit) = self.nodes[node].service.poll_transmit(&mut datagram) {
            let Destination::Endpoint(to) = transmit.destination else { panic!("{transmit:?}") };
            let found = (0..self.nodes.len()).find(|it| endpoint(*it) == to);
            let found = found.filter(|it| !self.nodes[*it].is_deaf && !self.nodes[node].is_deaf);
            if let Some(to) = found {
                let arrival = Happening::Datagram(endpoint(node), to, datagram.clone());
                self.push(self.now + Duration::from_micros(150), arrival);
            }
            datagram.clear();
        }
        let now = self.now;
        self.nodes[node].take_events(now);
    }
}

impl Host {
    fn take_events(&mut self, now: Time) {
        while let Some(event) = self.service.poll_event() {
            match event {
                MembershipEvent::Met(node, at) => {
                    assert_ne!(node, self.id, "a node met itself");
                    assert!(!at.0.ip().is_unspecified(), "a node was met nowhere");
                    assert!(self.met.insert(node, at).is_none(), "{node:?} was met twice");
                }
                MembershipEvent::Parted(node) => {
                    assert!(self.met.remove(&node).is_some(), "parted from a stranger");
                    let still = self.views.values().any(|view| view.contains(node));
                    assert!(!still, "{node:?} is gone but still in a view");
                }
                MembershipEvent::View(change) => {
                    assert!(self.met.contains_key(&change.node), "a stranger in a view");
                    // Events of a group that was just left may still be queued.
                    let Some(view) = self.views.get_mut(&change.group) else { continue };
                    assert_eq!(change.version, view.version() + 1, "a version was left out");
                    assert!(view.apply(&change), "{change:?} changed nothing");
                    self.changes.push(change);
                }
                MembershipEvent::Settled => {
                    assert!(self.settled_at.is_none(), "settled twice");
                    self.settled_at = Some(now);
                }
                MembershipEvent::Away => {
                    assert!(!core::mem::replace(&mut self.is_away, true), "away twice");
                }
                MembershipEvent::Returned => {
                    assert!(core::mem::replace(&mut self.is_away, false), "it was never away");
                }
                MembershipEvent::Refused(group, error) => {
                    assert!(self.groups.remove(&group), "refused but not joined");
                    self.views.remove(&group);
                    self.refused.push((group, error));
                }
            }
        }
    }
}

//! Tests a registry process with two addresses, and a node that has both. Connections have no
//! delay.

use std::collections::BTreeSet;

use carom_proto::membership::Membership as _;
use carom_proto::membership::link::{LinkCommand, LinkEnd, LinkEvent, LinkId};
use carom_proto::membership::service::{
    Owners, PartitionState, Server, ServerConfig, Service, ServiceConfig,
};
use carom_proto::{Endpoint, Time};

use super::{counter, default, endpoint, group, node_id, settings};

const NODE: usize = 0;
const ADDRESSES: [usize; 2] = [1, 2];

struct Pair {
    server: Server,
    node: Service,
    /// Open connections. Both ends use the number that the node has assigned.
    open: BTreeSet<LinkId>,
}

impl Pair {
    fn new() -> Self {
        let addresses: Vec<Endpoint> = ADDRESSES.map(endpoint).into();
        let mut server = Server::new(ServerConfig { partitions: 1, ..default() }, 1);
        server.load(0, PartitionState::default());
        server.own(Time(1), 0);
        server.set_owners(Owners { partitions: 1, owned: vec![(0, addresses[0])] });
        let config = ServiceConfig { addresses, ..ServiceConfig::default() };
        let node = Service::new(node_id(NODE), endpoint(NODE), config, 1);
        Self { server, node, open: BTreeSet::new() }
    }

    fn step(&mut self, now: Time) {
        self.node.handle_timeout(now);
        self.server.handle_timeout(now);
        while self.carry_from_node(now) || self.carry_from_server(now) {}
    }

    fn carry_from_node(&mut self, now: Time) -> bool {
        let Some(command) = self.node.poll_link() else { return false };
        if let LinkCommand::Open { link, .. } = command {
            self.open.insert(link);
            self.server.handle_accepted(now, link, endpoint(NODE));
            self.node.handle_link(now, link, LinkEvent::Opened);
        } else if let Some((link, event)) = self.event_of(&command) {
            self.server.handle_link(now, link, event);
        }
        true
    }

    fn carry_from_server(&mut self, now: Time) -> bool {
        if let Some(commit) = self.server.poll_commit() {
            self.server.handle_committed(now, commit.id);
            return true;
        }
        let Some(command) = self.server.poll_link() else { return false };
        if let Some((link, event)) = self.event_of(&command) {
            self.node.handle_link(now, link, event);
        }
        true
    }

    /// Returns the event of a command at the other end of its connection, if that is open.
    fn event_of<'a>(&mut self, command: &'a LinkCommand) -> Option<(LinkId, LinkEvent<'a>)> {
        match command {
            LinkCommand::Open { .. } => panic!("a process opened a connection"),
            LinkCommand::Send { link, bytes } => {
                self.open.contains(link).then_some((*link, LinkEvent::Received(bytes)))
            }
            LinkCommand::Close { link } => {
                let end = LinkEvent::Closed { why: LinkEnd::ByPeer };
                self.open.remove(link).then_some((*link, end))
            }
        }
    }
}

#[test]
fn node_keeps_one_connection_to_a_process_with_two_addresses() {
    let mut pair = Pair::new();
    let start_ms = 1000;
    pair.node.join(Time(start_ms * 1_000_000), group(0), settings(8)).unwrap();
    for now in (start_ms..start_ms + 20_000).map(|ms| Time(ms * 1_000_000)) {
        pair.step(now);
        while pair.node.poll_event().is_some() {}
    }
    assert_eq!(pair.node.links(), 1);
    assert!(pair.node.is_settled() && !pair.node.is_away());
    let stats = pair.node.stats();
    // The node connects to both addresses, and to the owner's again after the other has replaced
    // it.
    assert!(counter(&stats, "links_welcomed") <= 3, "{stats:?}");
    assert_eq!(pair.server.sessions().count(), 1);
    pair.node.check();
    pair.server.check();
}

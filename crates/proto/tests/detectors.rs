//! Failure detectors and one registry process. Connections and datagrams have no delay.

#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use carom_proto::membership::link::{LinkCommand, LinkEnd, LinkEvent, LinkId};
use carom_proto::membership::service::*;
use carom_proto::membership::{Membership, MembershipEvent};
use carom_proto::*;

/// A registry process and its peers. Peers 0 and 1 are detectors, the others are nodes.
struct Lab {
    now: Time,
    server: Server,
    detectors: Vec<Detector>,
    nodes: Vec<Service>,
    failed: Vec<(NodeId, Time)>,
    /// `true` for each peer that has crashed.
    gone: Vec<bool>,
    /// `true` if nothing passes between the process and its peers. Connections are not closed.
    is_cut_off: bool,
    links: BTreeMap<LinkId, (usize, LinkId)>,
    accepted: u64,
}

const PROCESS: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 1, 1)), 7480);

fn endpoint(peer: usize) -> Endpoint {
    Endpoint(SocketAddr::from(([10, 0, 0, peer as u8 + 1], 7400)))
}

fn id(peer: usize) -> NodeId {
    NodeId(peer as u64 + 1)
}

const GROUP: GroupId = GroupId(1);

impl Lab {
    fn new(nodes: usize, detection_time: Option<Duration>) -> Self {
        // The default lease of 3 s is longer than the detection times that tests set, so that the
        // detectors report failures first.
        let config = ServerConfig { partitions: 1, ..ServerConfig::default() };
        let mut server = Server::new(config, 1);
        server.load(0, PartitionState::default());
        server.own(Time(1), 0);
        let owned = vec![(0, Endpoint(PROCESS))];
        server.set_owners(Owners { partitions: 1, owned });
        // Two addresses of one process must not take the connection from each other.
        let other = Endpoint(SocketAddr::from(([10, 0, 2, 1], 7480)));
        let addresses = vec![other, Endpoint(PROCESS)];
        let detector = |peer: usize| {
            let rack = format!("r{peer}");
            let addresses = addresses.clone();
            let config =
                DetectorConfig { addresses, rack, detection_time, ..DetectorConfig::default() };
            Detector::new(id(peer), endpoint(peer), config, peer as u64)
        };
        let node = |peer: usize| {
            let rack = format!("r{}", peer % 2);
            let addresses = addresses.clone();
            let config = ServiceConfig { addresses, rack, ..ServiceConfig::default() };
            Service::new(id(peer), endpoint(peer), config, peer as u64)
        };
        let mut lab = Self {
            now: Time(1_000_000_000),
            server,
            detectors: (0..2).map(detector).collect(),
            nodes: (2..2 + nodes).map(node).collect(),
            failed: Vec::new(),
            gone: vec![false; 2 + nodes],
            is_cut_off: false,
            links: BTreeMap::new(),
            accepted: 0,
        };
        let profile = Profile::TimeCritical(RateOfFire::default());
        let settings = GroupSettings::new("all", profile);
        for node in &mut lab.nodes {
            node.join(lab.now, GROUP, settings).unwrap();
        }
        lab
    }

    fn run_for(&mut self, span: Duration) {
        let end = self.now + span;
        while self.now < end {
            let detectors = self.detectors.iter().enumerate();
            let detectors = detectors.map(|(peer, it)| (peer, it.poll_timeout()));
            let nodes = self.nodes.iter().enumerate().map(|(n, it)| (n + 2, it.poll_timeout()));
            let peers = detectors.chain(nodes).filter(|(peer, _)| !self.gone[*peer]);
            let times = peers.filter_map(|(_, due)| due).chain(self.server.poll_timeout());
            let next = times.map(|due| due.at).min().unwrap_or(end).max(self.now);
            self.now = next.min(end);
            for peer in (0..self.gone.len()).filter(|peer| !self.gone[*peer]) {
                match peer {
                    0 | 1 => self.detectors[peer].handle_timeout(self.now),
                    _ => self.nodes[peer - 2].handle_timeout(self.now),
                }
            }
            self.server.handle_timeout(self.now);
            while self.carry() {}
            // Time advances even if a timer is always due now.
            self.now = self.now + Duration::from_micros(100);
        }
    }

    /// Delivers everything that is due now. Returns `true` if there was anything.
    fn carry(&mut self) -> bool {
        let mut has_work = false;
        while let Some(commit) = self.server.poll_commit() {
            self.server.handle_committed(self.now, commit.id);
            has_work = true;
        }
        while let Some(command) = self.server.poll_link() {
            has_work = true;
            let (LinkCommand::Send { link, .. } | LinkCommand::Close { link }) = &command else {
                panic!("a process opened a link");
            };
            let Some((peer, at)) = self.links.get(link).copied() else { continue };
            if self.is_cut_off {
                continue;
            }
            match command {
                LinkCommand::Send { bytes, .. } => {
                    self.tell_peer(peer, at, LinkEvent::Received(&bytes));
                }
                _ => {
                    self.links.remove(link);
                    self.tell_peer(peer, at, LinkEvent::Closed { why: LinkEnd::ByPeer });
                }
            }
        }
        for peer in (0..self.gone.len()).filter(|peer| !self.gone[*peer]).collect::<Vec<_>>() {
            has_work |= self.carry_from(peer);
        }
        has_work
    }

    fn carry_from(&mut self, peer: usize) -> bool {
        let mut has_work = false;
        loop {
            let command = match peer {
                0 | 1 => self.detectors[peer].poll_link(),
                _ => self.nodes[peer - 2].poll_link(),
            };
            let Some(command) = command else { break };
            has_work = true;
            if self.is_cut_off {
                if let LinkCommand::Close { link } = command
                    && let Some(accepted) = self.accepted_of(peer, link)
                {
                    self.links.remove(&accepted);
                }
                continue;
            }
            match command {
                LinkCommand::Open { link, .. } => {
                    self.accepted += 1;
                    let accepted = LinkId(self.accepted);
                    self.links.insert(accepted, (peer, link));
                    self.server.handle_accepted(self.now, accepted, endpoint(peer));
                    self.tell_peer(peer, link, LinkEvent::Opened);
                }
                LinkCommand::Send { link, bytes } => {
                    let Some(accepted) = self.accepted_of(peer, link) else { continue };
                    self.server.handle_link(self.now, accepted, LinkEvent::Received(&bytes));
                }
                LinkCommand::Close { link } => {
                    let Some(accepted) = self.accepted_of(peer, link) else { continue };
                    self.links.remove(&accepted);
                    let end = LinkEvent::Closed { why: LinkEnd::ByPeer };
                    self.server.handle_link(self.now, accepted, end);
                }
            }
        }
        let mut datagram = Vec::new();
        loop {
            let transmit = match peer {
                0 | 1 => self.detectors[peer].poll_transmit(&mut datagram),
                _ => self.nodes[peer - 2].poll_transmit(&mut datagram),
            };
            let Some(transmit) = transmit else { break };
            has_work = true;
            let to = (0..self.gone.len())
                .find(|it| transmit.destination == Destination::Endpoint(endpoint(*it)));
            match to.filter(|to| !self.gone[*to]) {
                Some(to @ (0 | 1)) => {
                    self.detectors[to].handle_datagram(self.now, endpoint(peer), &datagram);
                }
                Some(to) => {
                    self.nodes[to - 2].handle_datagram(self.now, endpoint(peer), &datagram);
                }
                None => {}
            }
            datagram.clear();
        }
        if peer >= 2 {
            while let Some(event) = self.nodes[peer - 2].poll_event() {
                if let MembershipEvent::View(change) = event
                    && change.kind == ViewChangeKind::Failed
                {
                    self.failed.push((change.node, self.now));
                }
            }
        }
        has_work
    }

    fn accepted_of(&self, peer: usize, link: LinkId) -> Option<LinkId> {
        let mut links = self.links.iter();
        links.find(|(_, at)| **at == (peer, link)).map(|(accepted, _)| *accepted)
    }

    fn tell_peer(&mut self, peer: usize, link: LinkId, event: LinkEvent<'_>) {
        match peer {
            _ if self.gone[peer] => {}
            0 | 1 => self.detectors[peer].handle_link(self.now, link, event),
            _ => self.nodes[peer - 2].handle_link(self.now, link, event),
        }
    }

    fn watched(&self, detector: usize) -> Vec<u64> {
        self.detectors[detector].watched().map(|node| node.0).collect()
    }
}

#[test]
fn a_process_that_is_cut_off_from_all_nodes_takes_none_for_dead() {
    let mut lab = Lab::new(4, None);
    lab.detectors.iter_mut().for_each(Detector::shut_down);
    lab.run_for(Duration::from_secs(5));
    lab.is_cut_off = true;
    lab.run_for(Duration::from_secs(60));
    assert_eq!(find(&lab.server.stats(), "times_cut_off"), 1);
    assert!(lab.nodes.iter().all(Service::is_away));
    // One of the nodes actually crashes meanwhile.
    lab.gone[5] = true;
    lab.is_cut_off = false;
    lab.run_for(Duration::from_secs(5));
    assert_eq!(lab.failed, []);
    let back = &lab.nodes[..3];
    assert!(back.iter().all(|node| !node.is_away() && node.incarnation() == 0));
    lab.run_for(Duration::from_secs(5));
    let failed: Vec<NodeId> = lab.failed.iter().map(|(node, _)| *node).collect();
    assert_eq!(failed, [id(5); 3], "who did not come back");
    assert_eq!(find(&lab.server.stats(), "sessions_expired"), 1);
    lab.server.check();
}

fn find(stats: &[(&str, u64)], name: &str) -> u64 {
    stats.iter().find(|(counter, _)| *counter == name).expect("a counter").1
}

#[test]
fn each_detector_watches_its_rack_and_the_next_detector() {
    let mut lab = Lab::new(4, None);
    lab.run_for(Duration::from_secs(20));
    assert_eq!(lab.watched(0), [2, 3, 5], "nodes 3 and 5 of rack 0, and detector 2");
    assert_eq!(lab.watched(1), [1, 4, 6]);
    for detector in &lab.detectors {
        let stats = detector.stats();
        assert_eq!(find(&stats, "reports_made"), 0);
        assert_eq!(find(&stats, "suspicions"), 0);
        assert!(find(&stats, "pongs_received") >= 55, "{stats:?}");
        assert!(find(&stats, "links_welcomed") <= 3, "two addresses of one process: {stats:?}");
    }
    assert_eq!(lab.failed, []);
    lab.server.check();
}

#[test]
fn a_detector_that_failed_is_replaced_by_the_one_before_it() {
    let mut lab = Lab::new(4, None);
    lab.run_for(Duration::from_secs(5));
    lab.gone[1] = true;
    lab.run_for(Duration::from_secs(5));
    assert_eq!(lab.watched(0), [3, 4, 5, 6], "both racks, and no other detector");
    assert_eq!(find(&lab.server.stats(), "detectors_failed"), 1);
    assert_eq!(lab.failed, []);
    lab.server.check();
}

#[test]
fn silent_node_leaves_all_views_before_its_lease_ends() {
    for detection_ms in [100, 500] {
        let detection_time = Duration::from_millis(detection_ms);
        let mut lab = Lab::new(4, Some(detection_time));
        lab.run_for(Duration::from_secs(5));
        assert_eq!(lab.failed, []);
        lab.gone[3] = true;
        let start = lab.now;
        lab.run_for(detection_time + Duration::from_millis(10));
        let nodes: Vec<NodeId> = lab.failed.iter().map(|(node, _)| *node).collect();
        assert_eq!(nodes, [id(3); 3], "after {:?}", lab.now.since(start));
        assert_eq!(find(&lab.server.stats(), "sessions_expired"), 1);
        assert!(find(&lab.server.stats(), "reports_received") > 0);
        lab.server.check();
    }
}

#[test]
fn a_detector_that_stops_hands_its_rack_over_at_once() {
    let mut lab = Lab::new(2, None);
    lab.run_for(Duration::from_secs(2));
    lab.detectors[0].shut_down();
    lab.run_for(Duration::from_millis(10));
    assert_eq!(lab.watched(1), [3, 4]);
    assert_eq!(lab.watched(0), []);
    assert_eq!(find(&lab.server.stats(), "detectors_failed"), 0);
}

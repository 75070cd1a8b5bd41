//! Small network in virtual time for membership providers.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use carom_proto::membership::gossip::{Config, Gossip};
use carom_proto::membership::{Membership, MembershipEvent};
use carom_proto::*;

/// Hosts, and the datagrams in flight between them. Everything random comes from one seed.
pub(crate) struct Net {
    pub(crate) now: Time,
    pub(crate) hosts: Vec<Host>,
    pub(crate) loss: f64,
    /// Island of each host. Hosts receive only from their own island, as when a link between racks
    /// fails.
    pub(crate) islands: Vec<u32>,
    /// Two hosts that do not receive from each other.
    pub(crate) cut: Option<[usize; 2]>,
    pub(crate) datagrams: u64,
    pub(crate) bytes: u64,
    /// Bytes sent by unicast, by sending host and destination.
    bytes_to: BTreeMap<(usize, Endpoint), u64>,
    /// Additional addresses at which hosts are reached, and from which they do not send.
    pub(crate) aliases: BTreeMap<Endpoint, usize>,
    /// Header of the attacker's last datagram, and the attacker's host. Challenges sent there are
    /// answered in the name of the header's sender.
    attacker: Option<(wire::Header, usize)>,
    /// Hash of every datagram with its time.
    pub(crate) history: u64,
    pub(crate) keep_datagrams: bool,
    pub(crate) kept: Vec<Vec<u8>>,
    rng: Rng,
    on_the_way: BTreeMap<(Time, u64), (Endpoint, usize, Vec<u8>)>,
    sent: u64,
}

/// One node, and what its provider has reported so far.
pub(crate) struct Host {
    pub(crate) membership: Box<dyn Membership>,
    pub(crate) id: NodeId,
    /// `true` if the node neither runs nor receives. Arriving datagrams are lost.
    pub(crate) crashed: bool,
    /// `true` if the node does not run. Arriving datagrams wait.
    pub(crate) paused: bool,
    pub(crate) met: BTreeSet<NodeId>,
    /// Address at which each node was met last.
    addresses: BTreeMap<NodeId, Endpoint>,
    pub(crate) views: BTreeMap<GroupId, View>,
    pub(crate) changes: Vec<(Time, ViewChange)>,
    pub(crate) settled_at: Option<Time>,
    pub(crate) refused: Vec<(GroupId, JoinError)>,
    pub(crate) parted: u32,
    waiting: Vec<(Endpoint, Vec<u8>)>,
}

pub(crate) const START: Time = Time(1_000_000_000);

pub(crate) fn endpoint(host: usize) -> Endpoint {
    Endpoint(SocketAddr::from((Ipv4Addr::new(10, 0, 0, host as u8 + 1), 7400)))
}

pub(crate) fn node_id(host: usize) -> NodeId {
    // Scattered, so that the order of ids is not the order of hosts.
    NodeId((host as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

pub(crate) fn settings(name: &str) -> GroupSettings {
    GroupSettings::new(name, Profile::TimeCritical(RateOfFire::new(8, 5)))
}

/// Returns a configuration with these hosts as seeds, which does not use the LAN.
pub(crate) fn with_seeds(seeds: &[usize]) -> Config {
    let seeds = seeds.iter().map(|host| endpoint(*host)).collect();
    Config { seeds, lan_hello: false, ..Config::default() }
}

impl Net {
    pub(crate) fn new(loss: f64, seed: u64) -> Self {
        Self {
            now: START,
            hosts: Vec::new(),
            loss,
            islands: Vec::new(),
            cut: None,
            datagrams: 0,
            bytes: 0,
            bytes_to: BTreeMap::new(),
            aliases: BTreeMap::new(),
            attacker: None,
            history: 0,
            keep_datagrams: false,
            kept: Vec::new(),
            rng: Rng::new(seed),
            on_the_way: BTreeMap::new(),
            sent: 0,
        }
    }

    /// Adds a host that does not know its own address.
    pub(crate) fn add(&mut self, config: Config) -> usize {
        let host = self.hosts.len();
        let bound = Endpoint(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 7400)));
        let seed = self.rng.next_u64();
        self.add_provider(Box::new(Gossip::new(node_id(host), bound, config, seed)))
    }

    fn add_provider(&mut self, membership: Box<dyn Membership>) -> usize {
        let host = self.hosts.len();
        self.hosts.push(Host::new(node_id(host), membership));
        self.islands.push(0);
        self.drain(host);
        host
    }

    pub(crate) fn join(&mut self, host: usize, name: &str) -> Result<(), JoinError> {
        self.join_with(host, name, settings(name))
    }

    pub(crate) fn join_with(
        &mut self,
        host: usize,
        name: &str,
        settings: GroupSettings,
    ) -> Result<(), JoinError> {
        let group = GroupId::of_name(name);
        self.hosts[host].views.insert(group, View::default());
        let result = self.hosts[host].membership.join(self.now, group, settings);
        if result.is_err() {
            self.hosts[host].views.remove(&group);
        }
        self.drain(host);
        result
    }

    pub(crate) fn leave(&mut self, host: usize, name: &str) {
        let group = GroupId::of_name(name);
        self.hosts[host].membership.leave(self.now, group);
        self.hosts[host].views.remove(&group);
        self.drain(host);
    }

    pub(crate) fn shut_down(&mut self, host: usize) {
        self.hosts[host].membership.shut_down(self.now);
        self.drain(host);
        self.hosts[host].crashed = true;
    }

    /// Replaces the process of a host by a new one.
    pub(crate) fn restart(&mut self, host: usize, membership: Box<dyn Membership>) {
        self.hosts[host] = Host::new(node_id(host), membership);
        self.drain(host);
    }

    pub(crate) fn resume(&mut self, host: usize) {
        self.hosts[host].paused = false;
        for (source, datagram) in std::mem::take(&mut self.hosts[host].waiting) {
            self.feed(host, source, &datagram);
        }
    }

    pub(crate) fn feed(&mut self, host: usize, source: Endpoint, datagram: &[u8]) {
        self.hosts[host].membership.handle_datagram(self.now, source, datagram);
        self.drain(host);
    }

    pub(crate) fn run_for(&mut self, span: Duration) {
        self.run_until(span, |_| false);
    }

    /// Runs until `done` returns `true`, but at most for `span`. Returns `true` if `done` did.
    pub(crate) fn run_until(
        &mut self,
        span: Duration,
        mut done: impl FnMut(&Self) -> bool,
    ) -> bool {
        let end = self.now + span;
        loop {
            if done(self) {
                return true;
            }
            let datagram = self.on_the_way.first_key_value().map(|((at, _), _)| *at);
            let running = |host: &Host| !host.crashed && !host.paused;
            let wakeup = (0..self.hosts.len())
                .filter(|host| running(&self.hosts[*host]))
                .filter_map(|host| Some((self.hosts[host].membership.poll_timeout()?.at, host)))
                .min();
            let next = wakeup.map(|(at, _)| at).into_iter().chain(datagram).min();
            let Some(next) = next.filter(|next| *next <= end) else {
                self.now = end;
                return done(self);
            };
            self.now = self.now.max(next);
            match wakeup {
                Some((at, host)) if datagram.is_none_or(|arrival| at <= arrival) => {
                    self.hosts[host].membership.handle_timeout(self.now);
                    self.drain(host);
                }
                _ => self.deliver(),
            }
        }
    }

    /// Returns `true` if the views of all running hosts are those that follow from `members`.
    pub(crate) fn agrees(&self, names: &[&str], members: impl Fn(usize, &str) -> bool) -> bool {
        let up: Vec<usize> =
            (0..self.hosts.len()).filter(|host| !self.hosts[*host].crashed).collect();
        names.iter().all(|name| {
            let inside: Vec<usize> = up.iter().copied().filter(|h| members(*h, name)).collect();
            inside.iter().all(|host| {
                let view = &self.hosts[*host].views[&GroupId::of_name(name)];
                let mut expected: Vec<NodeId> = inside
                    .iter()
                    .filter(|other| *other != host)
                    .map(|h| self.hosts[*h].id)
                    .collect();
                expected.sort();
                view.members() == expected
            })
        })
    }

    pub(crate) fn check(&self) {
        self.hosts.iter().for_each(|host| host.membership.check());
    }

    pub(crate) fn stat(&self, host: usize, name: &str) -> u64 {
        let stats = self.hosts[host].membership.stats();
        let found = stats.iter().find(|(counter, _)| *counter == name);
        found.unwrap_or_else(|| panic!("no counter {name}")).1
    }

    pub(crate) fn view(&self, host: usize, name: &str) -> &View {
        &self.hosts[host].views[&GroupId::of_name(name)]
    }

    /// Sends a datagram from the address of host number `attacker`, which no node has.
    ///
    /// The attacker first sends a hello in the name of the datagram's sender and answers the
    /// challenge that the hello draws, so that its address is validated.
    pub(crate) fn forge(&mut self, host: usize, attacker: usize, port: u16, datagram: &[u8]) {
        if self.hosts[host].crashed {
            return;
        }
        let (name, _) = wire::Header::decode(datagram).expect("it is whole");
        self.attacker = Some((name, attacker));
        let mut source = endpoint(attacker);
        source.0.set_port(port);
        let mut hello = Vec::new();
        wire::Header { kind: 2, flags: 0, group: GroupId(0), view: 0, ..name }.begin(&mut hello);
        hello.extend([&[0; 8][..], &identity(name.sender, 0, source)].concat());
        wire::seal(&mut hello, 0);
        self.feed(host, source, &hello);
        self.run_for(Duration::from_millis(1));
        let unvalidated = self.stat(host, "datagrams_unvalidated");
        self.feed(host, source, datagram);
        assert_eq!(self.stat(host, "datagrams_unvalidated"), unvalidated, "it is not heard");
    }

    /// Returns the bytes that one host has sent to the address of another.
    pub(crate) fn bytes_from_to(&self, from: usize, to: usize) -> u64 {
        self.bytes_to.get(&(from, endpoint(to))).copied().unwrap_or(0)
    }

    fn deliver(&mut self) {
        let Some((_, (source, host, datagram))) = self.on_the_way.pop_first() else { return };
        if self.hosts[host].crashed {
            return;
        }
        if self.hosts[host].paused {
            self.hosts[host].waiting.push((source, datagram));
            return;
        }
        self.feed(host, source, &datagram);
    }

    fn drain(&mut self, host: usize) {
        let mut datagram = Vec::new();
        while let Some(transmit) = self.hosts[host].membership.poll_transmit(&mut datagram) {
            self.transmit(host, transmit.destination, &datagram);
            datagram.clear();
        }
        self.hosts[host].take_events(self.now);
    }

    fn transmit(&mut self, from: usize, destination: Destination, datagram: &[u8]) {
        assert!(datagram.len() <= 1400, "a datagram of {} bytes", datagram.len());
        self.datagrams += 1;
        self.bytes += datagram.len() as u64;
        if let Destination::Endpoint(to) = destination {
            *self.bytes_to.entry((from, to)).or_default() += datagram.len() as u64;
        }
        let mut hash = fnv(&self.now.0.to_be_bytes()) ^ fnv(datagram);
        hash = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.history = self.history.rotate_left(5) ^ hash;
        if self.keep_datagrams {
            self.kept.push(datagram.to_vec());
        }
        if let (Some((name, attacker)), Destination::Endpoint(at)) = (self.attacker, destination)
            && at.0.ip() == endpoint(attacker).0.ip()
            && let Some(response) = path_response(name, at, datagram)
        {
            self.sent += 1;
            self.on_the_way.insert((self.now, self.sent), (at, from, response));
        }
        let to: Vec<usize> = match destination {
            Destination::Endpoint(to) => {
                let alias = self.aliases.get(&to);
                let is_there = |host: &usize| endpoint(*host) == to || alias == Some(host);
                (0..self.hosts.len()).filter(is_there).collect()
            }
            // Multicast loops back to its sender.
            Destination::Lan => (0..self.hosts.len()).collect(),
            other => panic!("membership sent to {other:?}"),
        };
        for host in to {
            let is_cut = self.cut.is_some_and(|pair| {
                host != from && [host, from].iter().all(|it| pair.contains(it))
            });
            if self.rng.chance(self.loss) || self.islands[host] != self.islands[from] || is_cut {
                continue;
            }
            let delay = Duration::from_micros(50 + self.rng.below(300) as u64);
            self.sent += 1;
            let arrival = (endpoint(from), host, datagram.to_vec());
            self.on_the_way.insert((self.now + delay, self.sent), arrival);
        }
    }
}

impl Host {
    fn new(id: NodeId, membership: Box<dyn Membership>) -> Self {
        Self {
            membership,
            id,
            crashed: false,
            paused: false,
            met: BTreeSet::new(),
            addresses: BTreeMap::new(),
            views: BTreeMap::new(),
            changes: Vec::new(),
            settled_at: None,
            refused: Vec::new(),
            parted: 0,
            waiting: Vec::new(),
        }
    }

    fn take_events(&mut self, now: Time) {
        while let Some(event) = self.membership.poll_event() {
            match event {
                MembershipEvent::Met(node, at) => {
                    assert_ne!(node, self.id, "a node met itself");
                    assert!(!at.0.ip().is_unspecified(), "a node was met nowhere");
                    let before = self.addresses.insert(node, at);
                    let is_new = self.met.insert(node);
                    assert!(is_new || before != Some(at), "{node:?} was met twice");
                }
                MembershipEvent::Parted(node) => {
                    assert!(self.met.remove(&node), "parted from a stranger");
                    let still = self.views.values().any(|view| view.contains(node));
                    assert!(!still, "{node:?} is gone but still in a view");
                    self.parted += 1;
                }
                MembershipEvent::View(change) => {
                    assert!(self.met.contains(&change.node), "a stranger in a view");
                    let view = self.views.get_mut(&change.group).expect("only own groups");
                    assert_eq!(change.version, view.version() + 1, "a version was left out");
                    assert!(view.apply(&change), "{change:?} changed nothing");
                    self.changes.push((now, change));
                }
                MembershipEvent::Settled => {
                    assert!(self.settled_at.is_none(), "settled twice");
                    self.settled_at = Some(now);
                }
                MembershipEvent::Away | MembershipEvent::Returned => {}
                MembershipEvent::Refused(group, error) => {
                    assert!(self.views.remove(&group).is_some(), "refused but not joined");
                    self.refused.push((group, error));
                }
            }
        }
    }
}

/// Returns the response from address `at` in the name of the sender of `name`, if `datagram` is a
/// challenge.
pub(crate) fn path_response(name: wire::Header, at: Endpoint, datagram: &[u8]) -> Option<Vec<u8>> {
    const HELLO: u8 = 2;
    const PATH_CHALLENGE: u8 = 8;
    const PATH_RESPONSE: u8 = 9;
    let (header, body) = wire::Header::decode(datagram).ok()?;
    let cookie = body.get(..8).filter(|cookie| **cookie != [0; 8])?;
    let response =
        wire::Header { kind: PATH_RESPONSE, flags: 0, group: GroupId(0), view: 0, ..name };
    let mut out = Vec::new();
    response.begin(&mut out);
    out.extend([cookie, &[0; 8], &identity(name.sender, 0, at)].concat());
    wire::seal(&mut out, 0);
    [HELLO, PATH_CHALLENGE].contains(&header.kind).then_some(out)
}

/// Encodes an identity in the wire format of the private type `Identity`.
pub(crate) fn identity(node: NodeId, bump: u32, at: Endpoint) -> Vec<u8> {
    let std::net::IpAddr::V4(ip) = at.0.ip() else { panic!("an address of IPv4") };
    let (node, bump, port) = (node.0.to_be_bytes(), bump.to_be_bytes(), at.0.port().to_be_bytes());
    [&node[..], &bump, &port, &[4], &ip.octets()].concat()
}

fn fnv(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

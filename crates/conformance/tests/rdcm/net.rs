//! A network of bulk engines, of which one sends and the others check the messages.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use carom_conformance::rdcm::cluster;
use carom_proto::rdcm::topology::{Topology as Cluster, Vertex};
use carom_proto::rdcm::{Config, Network, Rdcm};
use carom_proto::{
    Class, Engine as _, Event, GroupId, GroupSettings, Limiting, LossCause, Lost, Message,
    NetworkChange, NodeId, Profile, SendError, SendOptions, Slow, Time,
};
use carom_sim::{Fault, HostIx, Link, Member, Notice, Place, Roster, World, WorldConfig};

pub(crate) const NAME: &str = "images";
pub(crate) const MBIT: u64 = 1_000_000;

pub(crate) struct Setup {
    pub(crate) cluster: Cluster,
    pub(crate) link: Link,
    pub(crate) config: Config,
    pub(crate) seed: u64,
    /// `true` if the engines are configured with the topology, and the network follows their tree.
    pub(crate) is_known: bool,
    pub(crate) message_bytes: usize,
    pub(crate) deaf: BTreeSet<u32>,
}

pub(crate) struct Net {
    pub(crate) world: World<Member<Rdcm>>,
    pub(crate) group: GroupId,
    roster: Roster,
    setup: Setup,
    epoch_of_tree: usize,
    sender: HostIx,
    /// Number of messages that the sender's engine has accepted, out of `to_send`.
    pub(crate) sent: u64,
    pub(crate) to_send: u64,
    pub(crate) logs: BTreeMap<HostIx, Log>,
    pub(crate) slow: Vec<Slow>,
    pub(crate) limiting: Vec<Limiting>,
    pub(crate) safe: Vec<carom_proto::Confirmed>,
}

#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) got: Vec<u64>,
    pub(crate) repaired: u64,
    pub(crate) lost: Vec<Lost>,
    sender: Option<NodeId>,
    pub(crate) last_at: Time,
}

impl Setup {
    pub(crate) fn rack(hosts: u32, seed: u64) -> Self {
        Self {
            cluster: Cluster::racks(&[hosts]).expect("a rack"),
            link: Link::of_delay(Duration::from_micros(10)).with_bandwidth(1000 * MBIT, 300_000),
            config: Config::default(),
            seed,
            is_known: false,
            message_bytes: 4000,
            deaf: BTreeSet::new(),
        }
    }

    pub(crate) fn without_multicast(hosts: u32, seed: u64) -> Self {
        Self { deaf: (0..hosts).collect(), ..Self::rack(hosts, seed) }
    }

    pub(crate) fn bcube(ports: u32, k: u32, seed: u64) -> Self {
        let config = Config { repairs_share_path: false, ..Config::default() };
        Self {
            cluster: Cluster::bcube(ports, k).expect("a cluster"),
            config,
            is_known: true,
            ..Self::rack(1, seed)
        }
    }

    pub(crate) fn at_mbit(mut self, mbit: u64) -> Self {
        self.config.rate = Some(mbit * MBIT / 8);
        self
    }
}

impl Net {
    /// Creates a network with engines on these hosts, which join the group. The first host sends.
    pub(crate) fn new(setup: Setup, hosts: &[u32]) -> Self {
        let topology = cluster::topology(&setup.cluster, |_| setup.link);
        let mut net = Self {
            world: World::new(WorldConfig::new(topology, setup.seed)),
            group: GroupId::of_name(NAME),
            roster: Roster::new(Duration::from_millis(1), setup.seed),
            epoch_of_tree: 0,
            sender: HostIx(hosts[0]),
            sent: 0,
            to_send: 0,
            logs: BTreeMap::new(),
            slow: Vec::new(),
            limiting: Vec::new(),
            safe: Vec::new(),
            setup,
        };
        net.setup.deaf.iter().for_each(|host| net.world.network().set_deaf(HostIx(*host), true));
        hosts.iter().for_each(|host| net.start(*host));
        net.run(5);
        net
    }

    pub(crate) fn sending(count: u64, setup: Setup, hosts: &[u32]) -> Self {
        let mut net = Self::new(setup, hosts);
        net.to_send = count;
        net
    }

    pub(crate) fn id(host: u32) -> NodeId {
        NodeId(u64::from(host) + 1)
    }

    pub(crate) fn start(&mut self, host: u32) {
        let (id, ix) = (Self::id(host), HostIx(host));
        let mut config = self.setup.config.clone();
        if self.setup.is_known {
            let hosts = (0..self.setup.cluster.hosts()).map(|it| (Self::id(it), Vertex(it)));
            let topology = Box::new(self.setup.cluster.clone());
            config.network = Network::Known { topology, hosts: hosts.collect() };
        }
        let seed = self.setup.seed ^ u64::from(host);
        let engine = Member::new(Box::new(Rdcm::new(id, config, seed)), None);
        self.world.spawn(ix, id, engine);
        self.tell_paths(host);
        self.join(host);
    }

    pub(crate) fn deafen(&mut self, hosts: impl IntoIterator<Item = u32>) {
        self.setup.deaf = hosts.into_iter().collect();
        for host in 0..self.setup.cluster.hosts() {
            self.world.network().set_deaf(HostIx(host), self.setup.deaf.contains(&host));
            self.tell_paths(host);
        }
    }

    fn tell_paths(&mut self, host: u32) {
        let unreached: BTreeSet<NodeId> = self.setup.deaf.iter().copied().map(Self::id).collect();
        self.world.with(HostIx(host), |member, now| {
            let change = NetworkChange::Unreached(unreached);
            member.engine_mut().handle_network(now, &change);
        });
    }

    /// Returns the numbers of multicast and unicast data packets on the links from a host.
    pub(crate) fn data_from(&mut self, host: u32) -> (u64, u64) {
        let traffic = self.world.traffic().filter(|(from, ..)| *from == Place::Host(host));
        let (mut multicast, mut unicast) = (0, 0);
        for (_, _, traffic) in traffic {
            multicast += traffic.multicast.datagrams(Class::Data);
            unicast += traffic.unicast.datagrams(Class::Data);
        }
        (multicast, unicast)
    }

    pub(crate) fn join(&mut self, host: u32) {
        let settings = GroupSettings::new(NAME, Profile::Bulk);
        let joined = self.roster.join(&mut self.world, HostIx(host), self.group, settings);
        joined.expect("no member refuses");
        self.logs.entry(HostIx(host)).or_default();
    }

    pub(crate) fn leave(&mut self, host: u32) {
        self.roster.leave(&mut self.world, HostIx(host), self.group);
    }

    pub(crate) fn kill(&mut self, host: u32, is_told: bool) {
        match is_told {
            true => _ = self.roster.crash(&mut self.world, HostIx(host)),
            false => _ = self.world.kill(HostIx(host)),
        }
    }

    pub(crate) fn report_failed(&mut self, host: u32) {
        self.roster.report_failed(&mut self.world, HostIx(host));
    }

    pub(crate) fn suspect(&mut self, host: u32, other: u32, is_suspect: bool) {
        let (host, other) = (HostIx(host), HostIx(other));
        match is_suspect {
            true => self.roster.suspect(&mut self.world, host, other),
            false => self.roster.trust(&mut self.world, host, other),
        }
    }

    pub(crate) fn engine(&self, host: u32) -> &Rdcm {
        self.world.machine(HostIx(host)).expect("it runs").engine()
    }

    pub(crate) fn with<R>(&mut self, host: u32, call: impl FnOnce(&mut Rdcm, Time) -> R) -> R {
        let called = self.world.with(HostIx(host), |member, now| call(member.engine_mut(), now));
        called.expect("it runs")
    }

    pub(crate) fn confirm(&mut self, host: u32) {
        let group = self.group;
        self.with(host, |engine, now| engine.confirm(now, group));
    }

    pub(crate) fn set_backpressure(&mut self, host: u32, backlog: f64) {
        let group = self.group;
        self.with(host, |engine, now| engine.set_backpressure(now, group, backlog));
    }

    pub(crate) fn pause_for(&mut self, host: u32, ms: u64) {
        self.world.apply(&Fault::Pause(HostIx(host)));
        self.run(ms);
        self.world.apply(&Fault::Resume(HostIx(host)));
    }

    pub(crate) fn try_send(&mut self, host: u32, index: u64) -> Result<(), SendError> {
        let payload = message(index, self.setup.message_bytes);
        let group = self.group;
        let sent = self.world.with(HostIx(host), |member, now| {
            member.send(now, group, payload.into(), SendOptions::default())
        });
        sent.expect("it runs").map(|_| ())
    }

    /// Runs for `ms` milliseconds, in which the sender sends all messages that its engine accepts.
    pub(crate) fn run(&mut self, ms: u64) {
        for _ in 0..ms * STEPS_PER_MS {
            while self.sent < self.to_send && self.world.machine(self.sender).is_some() {
                match self.try_send(self.sender.0, self.sent) {
                    Ok(()) => self.sent += 1,
                    Err(SendError::QueueFull { .. } | SendError::HeldBack { .. }) => break,
                    Err(error) => panic!("{error}"),
                }
            }
            self.follow_tree();
            let Self { world, logs, slow, limiting, safe, .. } = self;
            let span = Duration::from_millis(1) / STEPS_PER_MS as u32;
            world.run_for(span, &mut |happening| match happening.event {
                Notice::Event(Event::Message(message)) => {
                    let log = logs.entry(happening.host).or_default();
                    log.take(&message, happening.at);
                }
                Notice::Event(Event::Lost(lost)) => {
                    logs.entry(happening.host).or_default().lost.push(lost);
                }
                Notice::Event(Event::Slow(event)) => slow.push(event),
                Notice::Event(Event::Limiting(event)) => limiting.push(event),
                Notice::Event(Event::Confirmed(event)) => safe.push(event),
                Notice::Event(_) | Notice::Refused(..) => {}
            });
        }
    }

    fn follow_tree(&mut self) {
        if !self.setup.is_known {
            return;
        }
        let Some(member) = self.world.machine(self.sender) else { return };
        if let Some(tree) = member.engine().tree(self.group).cloned() {
            let links: BTreeSet<u32> = tree.links().map(|link| link.0).collect();
            let hash = links
                .iter()
                .fold(7_usize, |hash, link| hash.wrapping_mul(31).wrapping_add(*link as usize + 1));
            if hash != self.epoch_of_tree {
                self.epoch_of_tree = hash;
                cluster::set_tree(&mut self.world, &self.setup.cluster, self.group, &tree);
            }
        }
    }

    /// Runs until these hosts have the last message. Returns the milliseconds, less than `within`.
    pub(crate) fn run_until_all_have(&mut self, hosts: &[u32], within: u64) -> u64 {
        for ms in 0..within {
            let count = self.to_send;
            if hosts.iter().all(|host| self.logs[&HostIx(*host)].got.last() == Some(&(count - 1))) {
                return ms;
            }
            self.run(1);
        }
        let counts: Vec<_> = hosts
            .iter()
            .map(|host| {
                let log = &self.logs[&HostIx(*host)];
                (*host, log.got.len(), log.got.last().copied(), log.lost.len())
            })
            .collect();
        panic!("of {} messages ({} accepted), the hosts have {counts:?}", self.to_send, self.sent);
    }

    pub(crate) fn run_until_whole(&mut self, hosts: &[u32], within: u64) -> u64 {
        let ms = self.run_until_all_have(hosts, within);
        self.assert_whole(hosts);
        ms
    }

    pub(crate) fn assert_whole(&self, hosts: &[u32]) {
        for host in hosts {
            let log = &self.logs[&HostIx(*host)];
            assert_eq!(log.got, (0..self.to_send).collect::<Vec<u64>>(), "host {host}");
            assert_eq!(log.lost, [], "host {host}");
        }
    }

    pub(crate) fn log(&self, host: u32) -> &Log {
        &self.logs[&HostIx(host)]
    }
}

impl Log {
    fn take(&mut self, message: &Message, at: Time) {
        let index = check(&message.payload);
        if let Some(last) = self.got.last() {
            assert!(index > *last, "message {index} after {last}");
            if index > last + 1 && self.sender == Some(message.sender) {
                let told = self.lost.iter().any(|it| it.cause == LossCause::TooFarBehind);
                assert!(told, "messages {last} to {index} are missing without a report");
            }
        }
        self.sender = Some(message.sender);
        self.got.push(index);
        self.repaired += u64::from(message.how != carom_proto::How::Direct);
        self.last_at = at;
    }
}

fn message(index: u64, bytes: usize) -> Vec<u8> {
    let mut payload = index.to_be_bytes().to_vec();
    payload.resize(bytes, index as u8);
    payload
}

fn check(payload: &[u8]) -> u64 {
    let (index, rest) = payload.split_first_chunk().expect("an index");
    let index = u64::from_be_bytes(*index);
    assert!(rest.iter().all(|byte| *byte == index as u8), "message {index} is corrupted");
    index
}

const STEPS_PER_MS: u64 = 2;

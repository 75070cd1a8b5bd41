use std::time::Duration;

use carom_conformance::gossip_forgery::{identity, packet, path_response};
use carom_proto::membership::gossip::{Config, Gossip};
use carom_proto::*;
use carom_sim::{Fault, Machine as _};

use crate::rig::{Rig, endpoint, ix, node_id, settings, unknown_endpoint};

pub(super) fn with_seeds(seeds: &[usize]) -> Config {
    let seeds = seeds.iter().map(|host| endpoint(*host)).collect();
    Config { seeds, lan_hello: false, ..Config::default() }
}

const NODES: usize = 66;

impl Rig {
    pub(super) fn for_gossip(loss: f64, seed: u64) -> Self {
        Self::new(NODES, loss, seed)
    }

    pub(super) fn add_gossip(&mut self, config: Config) -> usize {
        let (id, seed) = (node_id(self.nodes), self.rng.next_u64());
        let host = self.add(id, Gossip::new(id, unknown_endpoint(), config, seed));
        self.with(host, |node, _| node.may_move = true);
        host
    }

    pub(super) fn restart_as(&mut self, host: usize, gossip: Gossip) {
        self.start(host, node_id(host), Box::new(gossip));
        self.with(host, |node, _| node.may_move = true);
    }

    pub(super) fn join_name(&mut self, host: usize, name: &str) -> Result<(), JoinError> {
        self.join_as(host, name, settings(name))
    }

    pub(super) fn join_as(
        &mut self,
        host: usize,
        name: &str,
        settings: GroupSettings,
    ) -> Result<(), JoinError> {
        self.join(host, GroupId::of_name(name), settings)
    }

    pub(super) fn leave_name(&mut self, host: usize, name: &str) {
        self.leave(host, GroupId::of_name(name));
    }

    pub(super) fn view(&self, host: usize, name: &str) -> &View {
        &self.node(host).views[&GroupId::of_name(name)]
    }

    /// Stops a node, which then loses all datagrams, until [`Rig::revive`].
    pub(super) fn silence(&mut self, host: usize) {
        self.with(host, |node, _| node.is_deaf = true);
        self.pause(host);
    }

    pub(super) fn revive(&mut self, host: usize) {
        self.resume(host);
        self.run_for(Duration::ZERO);
        self.with(host, |node, _| node.is_deaf = false);
    }

    pub(super) fn cut(&mut self, a: usize, b: usize) {
        self.world.apply(&Fault::OneWay(vec![ix(a)], vec![ix(b)]));
        self.world.apply(&Fault::OneWay(vec![ix(b)], vec![ix(a)]));
    }

    pub(super) fn isolate(&mut self, host: usize) {
        self.world.apply(&Fault::Partition(vec![ix(host)]));
    }

    pub(super) fn heal(&mut self) {
        self.world.apply(&Fault::Heal);
    }

    pub(super) fn agrees_on(&self, names: &[&str], members: impl Fn(usize, &str) -> bool) -> bool {
        let runs = |host: &usize| {
            self.world
                .machine(ix(*host))
                .is_some_and(|it| it.member().is_some_and(|it| !it.is_deaf))
        };
        let up: Vec<usize> = (0..self.nodes).filter(runs).collect();
        names.iter().all(|name| {
            let inside: Vec<usize> = up.iter().copied().filter(|h| members(*h, name)).collect();
            inside.iter().all(|host| {
                let others = inside.iter().filter(|other| *other != host);
                let mut expected: Vec<NodeId> = others.map(|h| node_id(*h)).collect();
                expected.sort();
                self.view(*host, name).members() == expected
            })
        })
    }

    pub(super) fn feed(&mut self, host: usize, source: Endpoint, datagram: &[u8]) {
        self.with(host, |node, now| node.handle_datagram(now, source, datagram));
    }

    pub(super) fn sent_within(&mut self, span: Duration) -> Vec<Vec<u8>> {
        (0..self.nodes).for_each(|host| self.with(host, |node, _| node.kept = Some(Vec::new())));
        self.run_for(span);
        let kept = (0..self.nodes).map(|host| self.with(host, |node, _| node.kept.take()));
        kept.flatten().flatten().collect()
    }

    pub(super) fn traffic(&self) -> (u64, u64) {
        let sent = &self.world.counters().sent;
        (sent.all_datagrams(), sent.all_bytes())
    }

    pub(super) fn bytes_from_to(&self, from: usize, to: usize) -> u64 {
        self.node(from).sent.get(&endpoint(to)).copied().unwrap_or(0)
    }

    /// Sends a datagram from the address of host number `attacker`, which no node has.
    ///
    /// The attacker first sends a hello in the name of the datagram's sender and answers the
    /// resulting challenge, so that its address is validated.
    pub(super) fn forge(&mut self, host: usize, attacker: usize, port: u16, datagram: &[u8]) {
        if self.node(host).is_deaf {
            return;
        }
        let (name, _) = wire::Header::decode(datagram).expect("a valid header");
        for host in 0..self.nodes {
            let ip = endpoint(attacker).0.ip();
            self.with(host, |node, _| {
                node.answer = Some(Box::new(move |at, datagram| {
                    (at.0.ip() == ip).then(|| path_response(&name, at, datagram))?
                }));
            });
        }
        let mut source = endpoint(attacker);
        source.0.set_port(port);
        let body = [&[0; 8][..], &identity(name.sender, 0, source)].concat();
        let hello = packet(2, 0, name.origin(), &body);
        self.feed(host, source, &hello);
        self.run_for(Duration::from_millis(1));
        let unvalidated = self.stat(host, "datagrams_unvalidated");
        self.feed(host, source, datagram);
        assert_eq!(self.stat(host, "datagrams_unvalidated"), unvalidated, "it is not heard");
    }
}

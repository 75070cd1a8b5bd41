//! Nodes with one kind of provider, and the groups that they have really joined.

use std::collections::BTreeSet;
use std::time::Duration;

use carom_proto::membership::service::ServerConfig;
use carom_proto::{GroupId, GroupSettings, JoinError, NodeId, ViewChangeKind};
use carom_sim::Fault;

use super::probe::Probe;
use super::rig::{Rig, ix, node_id, settings};
use super::{HOSTS, Meets, Subject};

pub(crate) struct Cluster<'a> {
    pub(crate) subject: &'a Subject,
    pub(crate) rig: Rig,
    pub(crate) truth: Vec<Option<BTreeSet<&'static str>>>,
    ids: Vec<NodeId>,
    lives: usize,
    cut_off: BTreeSet<usize>,
}

impl<'a> Cluster<'a> {
    pub(crate) fn new(subject: &'a Subject, loss: f64, seed: u64) -> Self {
        // The hosts of two registry processes and their store follow those of the nodes.
        let mut rig = Rig::new(HOSTS + 3, loss, seed);
        if subject.is_served {
            rig.start_registry(HOSTS, 2, ServerConfig { partitions: 4, ..ServerConfig::default() });
        }
        let (truth, ids) = (vec![None; HOSTS], vec![NodeId(0); HOSTS]);
        let mut cluster = Self { subject, rig, truth, ids, lives: 0, cut_off: BTreeSet::new() };
        (0..HOSTS).for_each(|host| cluster.start(host));
        cluster
    }

    pub(crate) fn agreed(subject: &'a Subject, loss: f64, seed: u64) -> Self {
        let mut cluster = Self::new(subject, loss, seed);
        cluster.run_for(Duration::from_secs(1));
        (0..HOSTS).for_each(|host| cluster.join(host, "all"));
        cluster.must_agree("at the start");
        cluster
    }

    pub(crate) fn start(&mut self, host: usize) {
        let (id, seed) = (node_id(self.lives), self.rig.rng.next_u64());
        self.lives += 1;
        self.ids[host] = id;
        self.truth[host] = Some(BTreeSet::new());
        self.rig.start(host, id, (self.subject.provider)(ix(host), id, seed));
    }

    pub(crate) fn id(&self, host: usize) -> NodeId {
        self.ids[host]
    }

    pub(crate) fn is_paused(&self, host: usize) -> bool {
        self.rig.world.is_paused(ix(host))
    }

    pub(crate) fn runs(&self, host: usize) -> bool {
        self.truth[host].is_some() && !self.is_paused(host)
    }

    pub(crate) fn node(&self, host: usize) -> &Probe {
        self.rig.node(host)
    }

    pub(crate) fn join(&mut self, host: usize, name: &'static str) {
        self.join_with(host, name, settings(name)).expect("all have the same settings");
        self.truth[host].as_mut().expect("the host is up").insert(name);
    }

    pub(crate) fn join_with(
        &mut self,
        host: usize,
        name: &str,
        settings: GroupSettings,
    ) -> Result<(), JoinError> {
        self.rig.join(host, GroupId::of_name(name), settings)
    }

    pub(crate) fn leave(&mut self, host: usize, name: &'static str) {
        self.rig.leave(host, GroupId::of_name(name));
        self.truth[host].as_mut().expect("the host is up").remove(name);
    }

    pub(crate) fn crash(&mut self, host: usize) {
        self.rig.crash(host);
        self.truth[host] = None;
    }

    pub(crate) fn stop(&mut self, host: usize) {
        self.rig.shut_down(host);
        self.truth[host] = None;
    }

    /// Partitions a host, or ends its partition. Partitioned hosts hear only each other.
    pub(crate) fn set_cut_off(&mut self, host: usize, is_cut_off: bool) {
        if is_cut_off {
            self.cut_off.insert(host);
        } else {
            self.cut_off.remove(&host);
        }
        self.rig.world.apply(&Fault::Heal);
        self.rig.world.apply(&Fault::Partition(self.cut_off.iter().copied().map(ix).collect()));
    }

    pub(crate) fn heal(&mut self) {
        self.cut_off.clear();
        let Rig { world, services, .. } = &mut self.rig;
        world.apply(&Fault::Heal);
        for host in world.topology().all_hosts() {
            world.apply(&Fault::Resume(host));
        }
        if let Some(services) = services {
            (0..services.count()).for_each(|which| services.start(world, which));
        }
    }

    pub(crate) fn run_for(&mut self, span: Duration) {
        self.rig.run_for(span);
    }

    pub(crate) fn expected(&self, host: usize, name: &str) -> BTreeSet<NodeId> {
        let is_in =
            |other: &usize| self.truth[*other].as_ref().is_some_and(|groups| groups.contains(name));
        let all: BTreeSet<NodeId> = if self.subject.tells_changes {
            (0..HOSTS).filter(is_in).map(|other| self.id(other)).collect()
        } else {
            (0..HOSTS).map(node_id).collect()
        };
        all.into_iter().filter(|id| *id != self.id(host)).collect()
    }

    fn expected_to_be_met(&self, host: usize) -> BTreeSet<NodeId> {
        let all: BTreeSet<NodeId> = match self.subject.meets {
            Meets::AllThatAreListed => (0..HOSTS).map(node_id).collect(),
            Meets::AllThatAreUp => {
                let up = (0..HOSTS).filter(|other| self.truth[*other].is_some());
                up.map(|other| self.id(other)).collect()
            }
            Meets::WhoSharesAGroup => {
                let groups = self.truth[host].iter().flatten();
                groups.flat_map(|name| self.expected(host, name)).collect()
            }
        };
        all.into_iter().filter(|id| *id != self.id(host)).collect()
    }

    fn disagreement(&self) -> Option<String> {
        for (host, groups) in self.truth.iter().enumerate() {
            let Some(groups) = groups else { continue };
            let node = self.node(host);
            for name in groups {
                let seen: BTreeSet<NodeId> = match node.views.get(&GroupId::of_name(name)) {
                    Some(view) => view.members().iter().copied().collect(),
                    None => return Some(format!("host {host} was refused by {name}")),
                };
                let expected = self.expected(host, name);
                if seen != expected {
                    return Some(format!("host {host}, {name}: {seen:?} instead of {expected:?}"));
                }
            }
            let (met, expected) = (&node.met, self.expected_to_be_met(host));
            if *met != expected {
                return Some(format!("host {host} has met {met:?} instead of {expected:?}"));
            }
        }
        None
    }

    pub(crate) fn must_agree(&mut self, when: &str) {
        let span = self.subject.agrees_within;
        self.must_agree_within(span, when);
    }

    pub(crate) fn must_agree_within(&mut self, span: Duration, when: &str) {
        let end = self.rig.now() + span;
        while let Some(what) = self.disagreement() {
            let name = self.subject.name;
            assert!(self.rig.now() < end, "{name}, {when}, {span:?} later: {what}");
            self.run_for(Duration::from_millis(20));
        }
    }

    pub(crate) fn told(&self, observer: usize, node: NodeId) -> Vec<ViewChangeKind> {
        self.node(observer).changes_of(node, GroupId::of_name("all"))
    }
}

//! Runner of a scenario of a bulk group, first with faults and then healed, which records its
//! story.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use carom_proto::rdcm::Rdcm;
use carom_proto::rdcm::topology::{LinkId, Topology as Cluster, Vertex};
use carom_proto::rdcm::tree::MulticastTree;
use carom_proto::{
    Engine as _, GroupId, GroupSettings, Incarnation, NodeId, Origin, Profile, Rng, Time,
};

use super::application::Application;
use super::scenario::{Deed, Scenario};
use super::settings::{LIVES, Settings};
use crate::checkers::bulk::Story;
use crate::{Counters, Fault, HostIx, Member, Notice, Place, Roster, Topology, World, WorldConfig};

/// Results of a run.
pub struct Played {
    /// The record for the checkers.
    pub story: Story,
    /// Hash of the run's history.
    pub history: u64,
    /// Counters of the network.
    pub counters: Counters,
    /// Sums of the counters of all engines that were alive at the end.
    pub totals: Vec<(&'static str, u64)>,
    /// Result of writing the capture.
    pub trace: io::Result<()>,
}

/// A scenario in progress.
pub(super) struct Player<'a> {
    scenario: &'a Scenario,
    pub(super) settings: Settings,
    cluster: Cluster,
    pub(super) world: World<Member<Rdcm>>,
    roster: Roster,
    pub(super) group: GroupId,
    pub(super) story: Story,
    rng: Rng,
    /// Source of the incarnations.
    incarnations: Rng,
    origins: BTreeMap<HostIx, Origin>,
    start: Time,
    /// Number of lives that each host has had.
    lives: BTreeMap<HostIx, u32>,
    /// Hosts whose node was killed without a report to the others.
    unreported: BTreeSet<HostIx>,
    pub(super) applications: BTreeMap<HostIx, Application>,
    dead_links: BTreeSet<LinkId>,
    trees: BTreeMap<HostIx, MulticastTree>,
    /// Hosts that receive no multicast, and those of which the nodes know it.
    pub(super) deaf: BTreeSet<HostIx>,
    pub(super) known_deaf: BTreeSet<HostIx>,
}

impl<'a> Player<'a> {
    pub(super) fn new(scenario: &'a Scenario) -> Self {
        let settings = Settings::of_seed(scenario.seed);
        let cluster = settings.shape.cluster();
        let topology = Topology::cluster(&cluster, |_| settings.link);
        let mut rng = Rng::new(scenario.seed ^ 0xb071);
        let config = WorldConfig {
            loss: scenario.loss,
            receive_buffer: settings.receive_buffer,
            ..WorldConfig::new(topology, rng.next_u64())
        };
        let world = World::new(config);
        let start = world.now();
        let mut player = Self {
            scenario,
            cluster,
            world,
            roster: Roster::new(scenario.delay, rng.next_u64()),
            group: GroupId::of_name(NAME),
            story: Story::new(
                settings.limit_bytes(),
                scenario.delay + settings.config.linger + STEP,
                settings.config.first_number,
            ),
            settings,
            rng,
            incarnations: Rng::new(scenario.seed ^ 0x17ca_4a7e),
            origins: BTreeMap::new(),
            start,
            lives: BTreeMap::new(),
            unreported: BTreeSet::new(),
            applications: BTreeMap::new(),
            dead_links: BTreeSet::new(),
            trees: BTreeMap::new(),
            deaf: BTreeSet::new(),
            known_deaf: BTreeSet::new(),
        };
        player.settings.deaf.clone().into_iter().for_each(|host| player.deafen(host, true));
        player.learn_paths();
        scenario.hosts.iter().for_each(|host| player.spawn(*host));
        player
    }

    /// Captures every packet from now on.
    pub(super) fn trace_to(&mut self, out: Box<dyn Write + Send>) {
        self.world.trace_to(out);
    }

    /// Runs the scenario.
    pub(super) fn play(mut self) -> Played {
        for (at, deed) in &self.scenario.deeds {
            self.run_until(self.start + *at);
            self.carry_out(deed);
            self.take_events();
        }
        self.heal();
        Played {
            trace: self.world.end_trace(),
            history: self.world.history(),
            counters: *self.world.counters(),
            totals: self.totals(),
            story: self.story,
        }
    }

    pub(super) fn scenario_hosts(&self) -> Vec<HostIx> {
        self.scenario.hosts.clone()
    }

    fn carry_out(&mut self, deed: &Deed) {
        match deed {
            Deed::Join(host) => self.join(*host),
            Deed::Leave(host) => self.leave(*host),
            Deed::Kill(host) => self.kill(*host),
            Deed::Report(host) => self.report(*host),
            Deed::Restart(host) => self.restart(*host),
            Deed::Bounce(host) => self.bounce(*host),
            Deed::Fault(fault) => self.world.apply(fault),
            Deed::CutLink { is_of_tree, number } => self.cut_link(*is_of_tree, *number),
            Deed::MendLinks => self.mend_links(),
            Deed::Say { host, count, bytes } => {
                let host = host.or_else(|| self.speaker());
                for _ in 0..if host.is_some() { *count } else { 0 } {
                    self.say(host.expect("somebody says it"), *bytes);
                }
            }
            Deed::Confirm => {
                if let Some(host) = self.sender() {
                    self.confirm(host);
                }
            }
            Deed::Hold(host, is_held) => self.hold(*host, *is_held),
            Deed::Deafen(host, is_deaf) => self.deafen(*host, *is_deaf),
            Deed::LearnPaths => self.learn_paths(),
            Deed::Forge { to, draw } => self.forge(*to, *draw),
            Deed::SenderLeaves => {
                if let Some(host) = self.sender() {
                    self.leave(host);
                }
            }
            Deed::SenderDies => {
                if let Some(host) = self.sender() {
                    self.kill(host);
                }
            }
        }
    }

    /// Starts a new node on a host.
    fn spawn(&mut self, host: HostIx) {
        let lives = self.lives.entry(host).or_default();
        let life = *lives;
        *lives += 1;
        let id = self.settings.id(host, life);
        let incarnation = match self.settings.keeps_ids {
            true => Incarnation(self.incarnations.next_u64()),
            false => Incarnation::default(),
        };
        let origin = Origin { node: id, incarnation };
        self.origins.insert(host, origin);
        let engine = Rdcm::new(origin, self.settings.engine(host, life), self.rng.next_u64());
        self.world.spawn(host, id, Member::new(Box::new(engine), None));
        self.tell_paths(host);
    }

    pub(super) fn id(&self, host: HostIx) -> Option<NodeId> {
        self.world.node_id(host)
    }

    /// Returns the origin of the packets of the node on a host.
    pub(super) fn origin(&self, host: HostIx) -> Option<Origin> {
        self.id(host).and_then(|_| self.origins.get(&host).copied())
    }

    pub(super) fn engine(&self, host: HostIx) -> Option<&Rdcm> {
        Some(self.world.machine(host)?.engine())
    }

    /// Returns `true` if the application on a host can use the group now.
    pub(super) fn can_use(&self, host: HostIx) -> bool {
        self.is_member(host) && !self.world.is_paused(host)
    }

    pub(super) fn is_member(&self, host: HostIx) -> bool {
        self.world.machine(host).is_some_and(|member| member.view(self.group).is_some())
    }

    /// Returns the hosts that are in the group and alive.
    pub(super) fn members(&self) -> Vec<HostIx> {
        let hosts = self.scenario.hosts.iter().copied();
        hosts.filter(|host| self.is_member(*host)).collect()
    }

    /// Returns the current sender. Of several it is the one with the smallest id.
    pub(super) fn sender(&self) -> Option<HostIx> {
        self.senders().into_iter().min_by_key(|host| self.id(*host))
    }

    /// Returns all members that consider themselves the sender.
    pub(super) fn senders(&self) -> Vec<HostIx> {
        let sends = |host: &HostIx| self.engine(*host).is_some_and(|it| self.has_tree(it));
        self.members().into_iter().filter(sends).collect()
    }

    fn has_tree(&self, engine: &Rdcm) -> bool {
        engine.tree(self.group).is_some()
    }

    /// Returns the sender, or else a member that could begin to send.
    fn speaker(&self) -> Option<HostIx> {
        let can_begin = |host: &HostIx| {
            self.can_use(*host)
                && self.engine(*host).is_some_and(|it| it.sender(self.group).is_none())
        };
        self.sender().or_else(|| self.members().into_iter().find(can_begin))
    }

    fn join(&mut self, host: HostIx) {
        if self.id(host).is_none() || self.world.is_paused(host) || self.is_member(host) {
            return;
        }
        let settings = GroupSettings::new(NAME, Profile::Bulk);
        let joined = self.roster.join(&mut self.world, host, self.group, settings);
        joined.expect("the engine takes every bulk group");
        let node = self.id(host).expect("it has just joined");
        self.story.joined(self.world.now(), node);
        self.applications.insert(host, Application::default());
    }

    fn leave(&mut self, host: HostIx) {
        let Some(node) = self.id(host).filter(|_| self.can_use(host)) else { return };
        self.take_events();
        self.roster.leave(&mut self.world, host, self.group);
        self.story.left(self.world.now(), node);
        self.applications.remove(&host);
    }

    fn kill(&mut self, host: HostIx) {
        let Some(node) = self.id(host) else { return };
        self.take_events();
        self.world.kill(host);
        self.story.left(self.world.now(), node);
        self.applications.remove(&host);
        self.unreported.insert(host);
    }

    fn report(&mut self, host: HostIx) {
        if self.unreported.remove(&host) {
            self.roster.report_failed(&mut self.world, host);
        }
    }

    fn restart(&mut self, host: HostIx) {
        let has_lives = self.lives.get(&host).is_none_or(|lives| *lives < LIVES);
        if self.id(host).is_none() && !self.unreported.contains(&host) && has_lives {
            self.spawn(host);
            self.join(host);
        }
    }

    /// Kills and starts a node without a report to the others, which learn it from its incarnation.
    fn bounce(&mut self, host: HostIx) {
        let has_lives = self.lives.get(&host).is_none_or(|lives| *lives < LIVES);
        let Some(node) = self.id(host).filter(|_| self.is_member(host) && has_lives) else {
            return;
        };
        self.take_events();
        self.world.kill(host);
        self.story.left(self.world.now(), node);
        self.applications.remove(&host);
        self.spawn(host);
        self.join(host);
    }

    fn hold(&mut self, host: HostIx, is_held: bool) {
        let group = self.group;
        if let Some(application) = self.applications.get_mut(&host) {
            application.holds = is_held;
            let node = self.world.node_id(host).expect("a member is alive");
            self.story.held(node);
            self.world.with(host, |member, now| member.engine_mut().hold(now, group, is_held));
        }
    }

    fn cut_link(&mut self, is_of_tree: bool, number: usize) {
        let tree = self.sender().and_then(|host| self.engine(host)?.tree(self.group));
        let links: Vec<LinkId> = match tree.filter(|_| is_of_tree && self.settings.is_known) {
            Some(tree) => tree.links().collect(),
            None => (0..self.cluster.links().len() as u32).map(LinkId).collect(),
        };
        if links.is_empty() {
            return;
        }
        let link = links[number % links.len()];
        let mut dead = self.dead_links.clone();
        if dead.insert(link) && is_connected(&self.cluster, &dead) {
            self.dead_links = dead;
            let [a, b] = self.ends(link);
            self.world.apply(&Fault::CutLink(a, b));
        }
    }

    pub(super) fn mend_links(&mut self) {
        for link in core::mem::take(&mut self.dead_links) {
            let [a, b] = self.ends(link);
            self.world.apply(&Fault::MendLink(a, b));
        }
    }

    fn ends(&self, link: LinkId) -> [Place; 2] {
        self.cluster.links()[link.0 as usize].map(|end| Place::of(&self.cluster, end))
    }

    /// Ends all remaining faults.
    pub(super) fn end_faults(&mut self) {
        self.world.apply(&Fault::Heal);
        self.world.apply(&Fault::Disturb(crate::Disturbance::default()));
        self.mend_links();
        self.learn_paths();
        for host in self.scenario.hosts.clone() {
            self.report(host);
            self.hold(host, false);
            self.world.apply(&Fault::Slow(host, Duration::ZERO));
            self.world.apply(&Fault::Resume(host));
        }
    }

    /// Replaces the loss model of every host.
    pub(super) fn lose(&mut self, loss: carom_proto::loss::Loss) {
        for host in self.scenario.hosts.clone() {
            self.world.apply(&Fault::Loss(host, loss));
        }
    }

    pub(super) fn run_for(&mut self, span: Duration) {
        self.run_until(self.world.now() + span);
    }

    fn run_until(&mut self, end: Time) {
        while self.world.now() < end {
            self.feed();
            self.follow_trees();
            let next = end.min(self.world.now() + STEP);
            let Self { world, story, .. } = self;
            let ids: BTreeMap<HostIx, NodeId> = ids_of(world, &self.scenario.hosts);
            world.run_until(next, &mut |happening| {
                write_down(story, &ids, happening.at, happening.host, happening.event);
            });
            self.look_at_memory();
        }
    }

    /// Records the events since the world was last run.
    pub(super) fn take_events(&mut self) {
        let ids = ids_of(&self.world, &self.scenario.hosts);
        while let Some(happening) = self.world.poll_event() {
            write_down(&mut self.story, &ids, happening.at, happening.host, happening.event);
        }
    }

    fn look_at_memory(&mut self) {
        for host in &self.scenario.hosts {
            if let Some(member) = self.world.machine(*host) {
                self.story.keeps(member.engine().held_bytes());
            }
        }
    }

    /// Makes the network forward along the trees that the senders' managers have computed.
    fn follow_trees(&mut self) {
        if !self.settings.is_known {
            return;
        }
        for host in self.senders() {
            let tree = self.engine(host).and_then(|engine| engine.tree(self.group));
            if let Some(tree) = tree.filter(|tree| self.trees.get(&host) != Some(*tree)).cloned() {
                self.world.set_tree(self.group, &tree);
                self.trees.insert(host, tree);
            }
        }
    }

    fn totals(&self) -> Vec<(&'static str, u64)> {
        let mut totals: BTreeMap<&'static str, u64> = BTreeMap::new();
        for host in &self.scenario.hosts {
            let stats = self.engine(*host).map(|engine| engine.stats()).unwrap_or_default();
            stats.into_iter().for_each(|(name, count)| *totals.entry(name).or_default() += count);
        }
        totals.into_iter().collect()
    }
}

fn ids_of(world: &World<Member<Rdcm>>, hosts: &[HostIx]) -> BTreeMap<HostIx, NodeId> {
    hosts.iter().filter_map(|host| Some((*host, world.node_id(*host)?))).collect()
}

fn write_down(
    story: &mut Story,
    ids: &BTreeMap<HostIx, NodeId>,
    at: Time,
    host: HostIx,
    notice: Notice,
) {
    if let (Notice::Event(event), Some(node)) = (notice, ids.get(&host)) {
        story.told(at, *node, event);
    }
}

/// Returns `true` if every host reaches every other one without these links.
fn is_connected(cluster: &Cluster, dead: &BTreeSet<LinkId>) -> bool {
    let mut reached = BTreeSet::from([Vertex(0)]);
    let mut next = vec![Vertex(0)];
    while let Some(vertex) = next.pop() {
        if vertex != Vertex(0) && !cluster.forwards(vertex) {
            continue;
        }
        for (neighbour, link) in cluster.neighbours(vertex) {
            if !dead.contains(link) && reached.insert(*neighbour) {
                next.push(*neighbour);
            }
        }
    }
    (0..cluster.hosts()).all(|host| reached.contains(&Vertex(host)))
}

const NAME: &str = "images";
/// Interval at which applications publish and the network adopts new trees.
const STEP: Duration = Duration::from_millis(1);

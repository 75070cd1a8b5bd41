//! Runs a scenario of a bulk group, first with faults and then healed, and records its history.

use core::time::Duration;
use std::collections::BTreeSet;
use std::sync::Arc;

use carom_proto::loss::Loss;
use carom_proto::rdcm::Rdcm;
use carom_proto::rdcm::topology::LinkId;
use carom_proto::wire::Datagram;
use carom_proto::{Engine as _, GroupId, GroupSettings, NodeId, Profile, Rng, Time};
use carom_sim::scenario::{Runner, Violation};
use carom_sim::{Disturbance, Fault, HostIx, Media, Member, World, WorldConfig};

use super::applications::Applications;
use super::checkers;
use super::cluster;
use super::forgery::{self, Origin};
use super::history::History;
use super::links::Links;
use super::multicast_reach::MulticastReach;
use super::scenario::{Hosts, Step};
use super::settings::{LIVES, Settings};
use crate::harness::{Harness, Kit, NodeIds, Start};
use crate::providers::Resident;

pub struct BulkRunner {
    pub(super) settings: Settings,
    pub(super) harness: Harness<Rdcm, History>,
    pub(super) group: GroupId,
    pub(super) applications: Applications,
    links: Links,
    reach: MulticastReach,
    unreported: BTreeSet<HostIx>,
}

impl Kit<Rdcm> for Settings {
    fn engine(&self, start: &Start, seed: u64) -> Box<Rdcm> {
        Box::new(Rdcm::new(start.origin, self.config_of(start.host, start.life), seed))
    }

    fn group(&self, _name: &str) -> GroupSettings {
        GroupSettings::new(NAME, Profile::Bulk)
    }
}

impl BulkRunner {
    pub(super) fn new(seed: u64, hosts: &Hosts, media: Option<Arc<dyn Media>>) -> Self {
        let settings = Settings::of_seed(seed);
        let cluster = settings.shape.cluster();
        let mut rng = Rng::new(seed ^ 0xb071);
        let config = WorldConfig {
            loss: hosts.loss,
            hashes_history: media.is_none(),
            media,
            receive_buffer: settings.receive_buffer,
            ..WorldConfig::new(cluster::topology(&cluster, |_| settings.link), rng.next_u64())
        };
        let (kit, ids) = (settings.clone(), settings.clone());
        let ids = NodeIds::new(settings.keeps_ids, seed, move |host, life| ids.id(host, life));
        let over_within = hosts.delay + settings.config.linger + STEP;
        let history = History::new(over_within, settings.config.first_number);
        let group = GroupId::of_name(NAME);
        let mut runner = Self {
            harness: Harness::new(config, hosts.delay, kit, ids, history, rng),
            group,
            applications: Applications::new(group, &settings.config),
            links: Links::new(cluster),
            reach: MulticastReach::default(),
            unreported: BTreeSet::new(),
            settings,
        };
        for host in &runner.settings.deaf {
            runner.reach.set_deaf(&mut runner.harness, *host, true);
        }
        runner.learn_paths();
        hosts.all.iter().for_each(|host| runner.start(*host));
        runner
    }

    pub(super) fn id(&self, host: HostIx) -> Option<NodeId> {
        self.harness.world.node_id(host)
    }

    pub(super) fn engine(&self, host: HostIx) -> Option<&Rdcm> {
        Some(self.harness.member(host)?.engine())
    }

    pub(super) fn members(&self) -> Vec<HostIx> {
        let hosts = self.settings.hosts.iter().copied();
        hosts.filter(|host| self.harness.is_in(*host, self.group)).collect()
    }

    pub(super) fn sender(&self) -> Option<HostIx> {
        self.senders().into_iter().min_by_key(|host| self.id(*host))
    }

    pub(super) fn senders(&self) -> Vec<HostIx> {
        let sends =
            |host: &HostIx| self.engine(*host).is_some_and(|it| it.tree(self.group).is_some());
        self.members().into_iter().filter(sends).collect()
    }

    fn speaker(&self) -> Option<HostIx> {
        let can_begin = |host: &HostIx| {
            self.harness.can_use(*host, self.group)
                && self.engine(*host).is_some_and(|it| it.sender(self.group).is_none())
        };
        self.sender().or_else(|| self.members().into_iter().find(can_begin))
    }

    fn start(&mut self, host: HostIx) {
        self.harness.start(host);
        self.reach.report_to(&mut self.harness, &self.settings, host);
    }

    fn join(&mut self, host: HostIx) {
        if self.harness.join(host, self.group) {
            self.applications.start(host);
        }
    }

    fn leave(&mut self, host: HostIx) {
        if self.harness.leave(host, self.group) {
            self.applications.end(host);
        }
    }

    fn kill(&mut self, host: HostIx) {
        if self.harness.is_alive(host) {
            self.harness.kill(host);
            self.applications.end(host);
            self.unreported.insert(host);
        }
    }

    fn report(&mut self, host: HostIx) {
        if self.unreported.remove(&host) {
            self.harness.report_failed(host);
        }
    }

    fn restart(&mut self, host: HostIx) {
        let is_gone = !self.harness.is_alive(host) && !self.unreported.contains(&host);
        if is_gone && self.harness.lives(host) < LIVES {
            self.start(host);
            self.join(host);
        }
    }

    /// Restarts a node without a report to the other nodes, which learn of it from its incarnation.
    fn bounce(&mut self, host: HostIx) {
        if self.harness.is_in(host, self.group) && self.harness.lives(host) < LIVES {
            self.harness.kill(host);
            self.applications.end(host);
            self.start(host);
            self.join(host);
        }
    }

    fn hold(&mut self, host: HostIx, is_held: bool) {
        if self.harness.is_in(host, self.group) {
            let (node, group) = (self.harness.id(host), self.group);
            if is_held {
                self.harness.record.held(node);
            }
            let backlog = f64::from(u8::from(is_held));
            self.harness.with(host, |member, now| {
                member.engine_mut().set_backpressure(now, group, backlog);
            });
        }
    }

    fn cut_link(&mut self, is_of_tree: bool, number: usize) {
        let tree = self.sender().and_then(|host| self.engine(host)?.tree(self.group));
        let links: Vec<LinkId> = match tree.filter(|_| is_of_tree && self.settings.is_known) {
            Some(tree) => tree.links().collect(),
            None => self.links.all(),
        };
        if links.is_empty() {
            return;
        }
        if let Some(fault) = self.links.cut(links[number % links.len()]) {
            self.harness.world.apply(&fault);
        }
    }

    fn mend_links(&mut self) {
        self.links.mend().iter().for_each(|fault| self.harness.world.apply(fault));
    }

    fn learn_paths(&mut self) {
        self.reach.report(&mut self.harness, &self.settings);
    }

    fn forge(&mut self, to: HostIx, draw: u64) {
        let group = self.group;
        let can_use = self.harness.can_use(to, group);
        let Some(sender) = self.sender().filter(|_| can_use) else { return };
        let engine = self.engine(sender).expect("it sends");
        let (stream, receivers) = (engine.stream(group), engine.receivers(group));
        let others: Vec<HostIx> = self.members().into_iter().filter(|host| *host != to).collect();
        let nodes: Vec<NodeId> = receivers.into_iter().map(|(node, _)| node).collect();
        // A place from a former start of the sender does not count in this stream.
        let follows =
            |it: &&Rdcm| it.sender(group) == self.id(sender) && it.stream(group) == stream;
        let receiver = self.engine(to).filter(follows);
        let place = receiver.and_then(|engine| engine.place(group)).cloned();
        let (mut rng, id) = (Rng::new(draw), self.harness.id(to));
        let Some((packet, origin)) = forgery::forged(&mut rng, id, place, &nodes, others.len())
        else {
            return;
        };
        let from = match origin {
            Origin::Sender => sender,
            Origin::Member(index) => others[index],
        };
        let mut datagram = Vec::new();
        packet.encode(group, self.harness.origin(from), stream, &mut datagram);
        let datagram = Datagram::parse(&datagram).expect("a datagram");
        self.harness.with(to, |member, now| member.engine_mut().handle_datagram(now, &datagram));
    }

    pub(super) fn publish(&mut self, host: HostIx, bytes: usize) {
        self.applications.publish(&mut self.harness, host, bytes);
    }

    pub(super) fn confirm(&mut self, host: HostIx) {
        let group = self.group;
        if self.harness.can_use(host, group) {
            self.harness.take_events();
            self.harness.record.asked_to_confirm(self.harness.id(host));
            self.harness.with(host, |member, now| member.engine_mut().confirm(now, group));
            self.harness.take_events();
        }
    }

    pub(super) fn end_faults(&mut self) {
        self.harness.world.apply(&Fault::Heal);
        self.harness.world.apply(&Fault::Disturb(Disturbance::default()));
        self.mend_links();
        self.learn_paths();
        for host in self.settings.hosts.clone() {
            self.report(host);
            self.hold(host, false);
            self.harness.world.apply(&Fault::Slow(host, Duration::ZERO));
            self.harness.world.apply(&Fault::Resume(host));
        }
    }

    pub(super) fn lose(&mut self, loss: Loss) {
        for host in &self.settings.hosts {
            self.harness.world.apply(&Fault::Loss(*host, loss));
        }
    }

    fn follow_trees(&mut self) {
        if !self.settings.is_known {
            return;
        }
        for host in self.senders() {
            let tree = self.engine(host).and_then(|engine| engine.tree(self.group));
            if let Some(tree) = tree.filter(|tree| !self.links.carry(host, tree)).cloned() {
                self.links.follow(&mut self.harness.world, self.group, host, tree);
            }
        }
    }
}

impl Runner for BulkRunner {
    type Step = Step;
    type Record = History;
    type Machine = Resident<Member<Rdcm>>;

    fn world(&mut self) -> &mut World<Self::Machine> {
        &mut self.harness.world
    }

    fn run_until(&mut self, end: Time) {
        let limit = self.settings.limit_bytes();
        while self.harness.world.now() < end {
            self.applications.feed_all(&mut self.harness);
            self.harness.take_events();
            self.follow_trees();
            self.harness.run_until(end.min(self.harness.world.now() + STEP));
            self.harness.record.memory.note(self.harness.most_held_bytes(), limit);
        }
    }

    fn execute(&mut self, step: &Step) {
        match step {
            Step::Join(host) => self.join(*host),
            Step::Leave(host) => self.leave(*host),
            Step::Kill(host) => self.kill(*host),
            Step::Report(host) => self.report(*host),
            Step::Restart(host) => self.restart(*host),
            Step::Bounce(host) => self.bounce(*host),
            Step::Fault(fault) => self.harness.world.apply(fault),
            Step::CutLink { is_of_tree, number } => self.cut_link(*is_of_tree, *number),
            Step::MendLinks => self.mend_links(),
            Step::Send { host, count, bytes } => {
                if let Some(host) = host.or_else(|| self.speaker()) {
                    (0..*count).for_each(|_| self.publish(host, *bytes));
                }
            }
            Step::Confirm => self.sender().into_iter().for_each(|host| self.confirm(host)),
            Step::Hold(host, is_held) => self.hold(*host, *is_held),
            Step::Deafen(host, is_deaf) => {
                self.reach.set_deaf(&mut self.harness, *host, *is_deaf);
            }
            Step::LearnPaths => self.learn_paths(),
            Step::Forge { to, draw } => self.forge(*to, *draw),
            Step::SenderLeaves => self.sender().into_iter().for_each(|host| self.leave(host)),
            Step::SenderDies => self.sender().into_iter().for_each(|host| self.kill(host)),
        }
        self.harness.take_events();
    }

    fn recover(&mut self) {
        self.heal();
    }

    fn finish(self) -> (History, Vec<Violation>) {
        let record = self.harness.record;
        let violations = checkers::all(&record);
        (record, violations)
    }
}

const NAME: &str = "images";
const STEP: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::super::scenario::scenario;
    use super::*;

    #[test]
    fn only_a_member_that_was_paused_is_recorded_as_paused() {
        let mut runner = BulkRunner::new(1, &scenario(1).participants, None);
        let hosts = runner.settings.hosts.clone();
        hosts.iter().for_each(|host| runner.join(*host));
        runner.run_until(Time(1_000_000_000));
        let members = runner.members();
        let paused = members[0];
        runner.hold(paused, true);
        runner.end_faults();
        let has_held = |host: &HostIx| {
            let account = runner.harness.record.account(runner.harness.id(*host));
            account.expect("a member").has_held
        };
        let held: Vec<HostIx> = members.iter().copied().filter(has_held).collect();
        assert!(members.len() > 1 && held == [paused], "{held:?} of {members:?}");
    }
}

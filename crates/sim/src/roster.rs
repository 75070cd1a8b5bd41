use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use carom_proto::{
    GroupId, GroupSettings, JoinError, NodeId, Rng, Time, ViewChange, ViewChangeKind,
};

use crate::machine::{Command, GroupMember};
use crate::{HostIx, Scheduled, World};

/// The members of each group. The roster reports each join, leave and failure to the engines of the
/// other members.
///
/// Each engine receives the reports in the order of the changes, each after a random delay.
#[derive(Debug)]
pub struct Roster {
    members: BTreeMap<GroupId, BTreeMap<HostIx, NodeId>>,
    settings: BTreeMap<GroupId, GroupSettings>,
    delay: Duration,
    reported: BTreeMap<HostIx, Time>,
    pending: BTreeMap<(HostIx, GroupId), Vec<Scheduled>>,
    versions: BTreeMap<(HostIx, GroupId), u32>,
    rng: Rng,
}

impl Roster {
    /// Creates an empty roster that reports each change within `delay`.
    pub fn new(delay: Duration, seed: u64) -> Self {
        Self {
            members: BTreeMap::new(),
            settings: BTreeMap::new(),
            delay,
            reported: BTreeMap::new(),
            pending: BTreeMap::new(),
            versions: BTreeMap::new(),
            rng: Rng::new(seed),
        }
    }

    /// Sets the maximum delay of further reports.
    pub fn set_delay(&mut self, delay: Duration) {
        self.delay = delay;
    }

    /// Returns the members of `group`.
    pub fn members(&self, group: GroupId) -> impl Iterator<Item = HostIx> + '_ {
        self.members.get(&group).into_iter().flat_map(BTreeMap::keys).copied()
    }

    /// Returns the groups of `host`.
    pub fn groups_of(&self, host: HostIx) -> Vec<GroupId> {
        let with_host = self.members.iter().filter(|(_, hosts)| hosts.contains_key(&host));
        with_host.map(|(group, _)| *group).collect()
    }

    /// Makes the engine on `host` join `group`, and reports it and the other members to each other.
    /// Has no effect if the host has no machine.
    ///
    /// # Errors
    /// Returns the machine's error if it refuses to join. The roster is then unchanged.
    pub fn join<M: GroupMember>(
        &mut self,
        world: &mut World<M>,
        host: HostIx,
        group: GroupId,
        settings: GroupSettings,
    ) -> Result<(), JoinError> {
        let Some(newcomer) = world.node_id(host) else { return Ok(()) };
        world.with(host, |member, now| member.join_group(now, group, settings)).transpose()?;
        world.subscribe(host, group);
        self.settings.insert(group, settings);
        let members = self.members.entry(group).or_default();
        members.remove(&host);
        let others: Vec<(HostIx, NodeId)> = members.iter().map(|(host, id)| (*host, *id)).collect();
        members.insert(host, newcomer);
        for (other, old) in others {
            self.inform(world, other, Command::Met(newcomer, host.endpoint()));
            self.report(world, other, group, newcomer, ViewChangeKind::Joined);
            self.inform(world, host, Command::Met(old, other.endpoint()));
            self.report(world, host, group, old, ViewChangeKind::Joined);
        }
        Ok(())
    }

    /// Makes the engine on `host` leave `group`, and reports the leave to the other members. Has no
    /// effect if it is not a member.
    pub fn leave<M: GroupMember>(&mut self, world: &mut World<M>, host: HostIx, group: GroupId) {
        let member = self.members.get_mut(&group).and_then(|hosts| hosts.remove(&host));
        let Some(id) = member else { return };
        world.command(host, Command::Leave(group).into());
        // Reports of this membership must not arrive after a later join.
        let pending = self.pending.remove(&(host, group)).unwrap_or_default();
        pending.into_iter().for_each(|news| world.cancel(news));
        world.unsubscribe(host, group);
        for other in self.members(group).collect::<Vec<_>>() {
            self.report(world, other, group, id, ViewChangeKind::Left);
        }
    }

    /// Kills the machine on `host`, and reports its failure. Returns the groups that it was in.
    pub fn crash<M: GroupMember>(&mut self, world: &mut World<M>, host: HostIx) -> Vec<GroupId> {
        world.kill(host);
        self.report_failed(world, host)
    }

    /// Reports to the other members that the machine on `host` has failed. Returns the groups that
    /// it was in.
    ///
    /// The machine must have been killed before, and no machine may have run on the host since.
    /// Until this call, the views of new members include the failed machine.
    pub fn report_failed<M: GroupMember>(
        &mut self,
        world: &mut World<M>,
        host: HostIx,
    ) -> Vec<GroupId> {
        let groups = self.groups_of(host);
        self.reported.remove(&host);
        let mut known = BTreeSet::new();
        for group in &groups {
            let member = self.members.get_mut(group).and_then(|hosts| hosts.remove(&host));
            let Some(id) = member else { continue };
            self.versions.remove(&(host, *group));
            self.pending.remove(&(host, *group));
            for other in self.members(*group).collect::<Vec<_>>() {
                self.report(world, other, *group, id, ViewChangeKind::Failed);
                known.insert((other, id));
            }
        }
        for (other, id) in known {
            self.inform(world, other, Command::Parted(id));
        }
        groups
    }

    /// Reports to `host`, in all common groups, a false failure of the engine on `other`.
    pub fn suspect<M: GroupMember>(&mut self, world: &mut World<M>, host: HostIx, other: HostIx) {
        self.report_in_all(world, host, other, ViewChangeKind::Failed);
    }

    /// Reports to `host`, in all common groups, that the engine on `other` is online after all.
    pub fn trust<M: GroupMember>(&mut self, world: &mut World<M>, host: HostIx, other: HostIx) {
        self.report_in_all(world, host, other, ViewChangeKind::Joined);
    }

    fn report_in_all<M: GroupMember>(
        &mut self,
        world: &mut World<M>,
        host: HostIx,
        other: HostIx,
        kind: ViewChangeKind,
    ) {
        let Some(id) = world.node_id(other).filter(|_| host != other) else { return };
        for group in self.groups_of(other) {
            if self.members.get(&group).is_some_and(|hosts| hosts.contains_key(&host)) {
                self.report(world, host, group, id, kind);
            }
        }
    }

    /// Reports a node's address or end to the engine on `host`, after all pending view changes.
    fn inform<M: GroupMember>(&self, world: &mut World<M>, host: HostIx, news: Command) {
        match self.reported.get(&host).filter(|_| !self.delay.is_zero()) {
            Some(last) => _ = world.command_at(*last, host, news.into()),
            None => world.command(host, news.into()),
        }
    }

    fn report<M: GroupMember>(
        &mut self,
        world: &mut World<M>,
        host: HostIx,
        group: GroupId,
        node: NodeId,
        kind: ViewChangeKind,
    ) {
        let version = self.versions.entry((host, group)).or_default();
        *version += 1;
        let change = ViewChange { group, node, kind, version: *version };
        if self.delay.is_zero() {
            world.command(host, Command::View(change).into());
            return;
        }
        let delay = self.delay.as_nanos() as f64 * self.rng.fraction();
        let at = world.now() + Duration::from_nanos(delay as u64);
        let last = self.reported.entry(host).or_default();
        *last = at.max(*last);
        let news = world.command_at(*last, host, Command::View(change).into());
        self.pending.entry((host, group)).or_default().push(news);
    }
}

//! Churn: nodes that are replaced during a run, and how the other nodes learn of it.

use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use carom_proto::membership::gossip::{Config, Gossip};
use carom_proto::{Engine, GroupSettings, NodeId, Profile, RateOfFire, Rng, Time};
use carom_sim::{GroupMember as _, HostIx, Roster, World};
use serde::Deserialize;

use super::ledger::Ledger;
use super::member::Member;
use super::membership::{Groups, group_id, node_id};
use super::stays::{BEGINNING, Stay, Stays};
use crate::plan::Span;

/// The replacement of nodes at a constant rate. When a random node departs, another node starts on
/// a new host and joins as many groups. Departing nodes alternately crash and leave.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Churn {
    /// Share of the nodes that is replaced per minute.
    pub(crate) replaced_per_minute: f64,
    pub(crate) views: Views,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, tag = "kind", rename_all = "snake_case")]
pub(crate) enum Views {
    /// An oracle reports a join or leave within `others`, and a crash within `failures + others`.
    Told {
        /// Time from a crash until the oracle notices it.
        failures: Span,
        others: Span,
    },
    Gossip,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Change {
    at: Time,
    host: u32,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Comes,
    Leaves,
    Crashes,
    /// The oracle notices the crash.
    IsMissed,
}

pub(super) struct Changes<'a, E> {
    groups: Rc<Groups>,
    due: std::vec::IntoIter<Change>,
    next: Option<Change>,
    make: &'a mut dyn FnMut(NodeId, u64) -> E,
    profile: fn(RateOfFire) -> Profile,
    /// Oracle that reports the changes, or `None` if the nodes use gossip.
    roster: Option<Roster>,
    rng: Rng,
}

impl Churn {
    /// Draws the changes until `end`. Nodes that start later are added to `groups`.
    fn draw(
        &self,
        groups: &mut Groups,
        grace: Duration,
        end: Time,
        rng: &mut Rng,
    ) -> (Stays, Vec<Change>) {
        let mut present: Vec<u32> = groups.hosts().collect();
        let stay = Stay { from: BEGINNING, until: Time::MAX };
        let mut stays = vec![stay; present.len()];
        let mut changes = Vec::new();
        let per_second = self.replaced_per_minute * present.len() as f64 / 60.0;
        let count = (end.since(BEGINNING).as_secs_f64() * per_second) as u32;
        for number in 0..count {
            let seconds = (f64::from(number) + rng.fraction()) / per_second;
            let at = BEGINNING + Duration::from_nanos((seconds * 1e9) as u64);
            let comes = groups.welcome(rng);
            let place = rng.below(present.len());
            let goes = std::mem::replace(&mut present[place], comes);
            stays[goes as usize].until = at;
            stays.push(Stay { from: at, ..stay });
            let crashes = number % 2 == 0;
            let what = if crashes { What::Crashes } else { What::Leaves };
            changes.push(Change { at, host: goes, what });
            changes.push(Change { at, host: comes, what: What::Comes });
            if let Views::Told { failures, .. } = self.views
                && crashes
            {
                changes.push(Change { at: at + failures.0, host: goes, what: What::IsMissed });
            }
        }
        changes.sort_by_key(|change| change.at);
        (Stays::new(stays, grace), changes)
    }
}

pub(super) struct Plan {
    pub(super) stays: Rc<Stays>,
    changes: Vec<Change>,
}

impl Plan {
    /// Draws `churn` until `end`. A node must stay for `grace` after a send to be owed the message.
    pub(super) fn draw(
        churn: Option<&Churn>,
        groups: &mut Groups,
        grace: Duration,
        end: Time,
        rng: &mut Rng,
    ) -> Self {
        let (stays, changes) = match churn {
            None => (Stays::for_ever(), Vec::new()),
            Some(churn) => churn.draw(groups, grace, end, rng),
        };
        Self { stays: Rc::new(stays), changes }
    }

    pub(super) fn replaced(&self) -> u32 {
        self.changes.iter().filter(|change| change.what == What::Comes).count() as u32
    }

    /// Returns the changes to apply. With churn, first starts the nodes that are present from the
    /// beginning.
    pub(super) fn begin<'a, E: Engine>(
        self,
        churn: Option<&Churn>,
        groups: Rc<Groups>,
        make: &'a mut dyn FnMut(NodeId, u64) -> E,
        profile: fn(RateOfFire) -> Profile,
        world: &mut World<Member<E>>,
        rng: &mut Rng,
    ) -> Changes<'a, E> {
        let views = churn.map(|churn| churn.views);
        let told = |seed| Roster::new(Duration::ZERO, seed);
        let is_told = matches!(views, Some(Views::Told { .. }));
        let mut due = self.changes.into_iter();
        let mut changes = Changes {
            roster: is_told.then(|| told(rng.next_u64())),
            next: due.next(),
            due,
            make,
            profile,
            rng: Rng::new(0),
            groups,
        };
        let Some(views) = views else { return changes };
        changes.rng = rng.fork(2);
        for host in Rc::clone(&changes.groups).hosts() {
            if self.stays.is_there(host, BEGINNING) {
                changes.come(world, host);
            }
        }
        if let (Some(roster), Views::Told { others, .. }) = (&mut changes.roster, views) {
            roster.set_delay(others.0);
        }
        changes
    }
}

impl<E: Engine> Changes<'_, E> {
    pub(super) fn go_on(&mut self, world: &mut World<Member<E>>, ledger: &mut Ledger, to: Time) {
        while let Some(change) = self.next.filter(|change| change.at <= to) {
            world.run_until(change.at, &mut |happening| ledger.note(happening));
            self.next = self.due.next();
            match change.what {
                What::Comes => self.come(world, change.host),
                What::Leaves => self.leave(world, change.host),
                What::Crashes => _ = world.kill(HostIx(change.host)),
                What::IsMissed => {
                    if let Some(roster) = &mut self.roster {
                        roster.report_failed(world, HostIx(change.host));
                    }
                }
            }
        }
    }

    fn come(&mut self, world: &mut World<Member<E>>, number: u32) {
        let (host, id) = (HostIx(number), node_id(number));
        let mut member = Member::new((self.make)(id, self.rng.next_u64()), None);
        if self.roster.is_none() {
            let seed = self.rng.next_u64();
            let gossip = Gossip::new(id, host.endpoint(), Config::default(), seed);
            member.provider = Some(Box::new(gossip));
        }
        world.spawn(host, id, member);
        for group in self.groups.of(number) {
            let profile = (self.profile)(self.groups.rate(*group, number));
            let settings = GroupSettings { profile, name_check: 0 };
            let group = group_id(*group);
            let joined = match &mut self.roster {
                Some(roster) => roster.join(world, host, group, settings),
                None => {
                    world.subscribe(host, group);
                    let join =
                        |member: &mut Member<E>, now| member.join_group(now, group, settings);
                    world.with(host, join).unwrap_or(Ok(()))
                }
            };
            joined.expect("plans are checked before they are run");
        }
    }

    fn leave(&mut self, world: &mut World<Member<E>>, number: u32) {
        let host = HostIx(number);
        let groups = self.groups.of(number).iter().map(|group| group_id(*group));
        match &mut self.roster {
            Some(roster) => groups.for_each(|group| roster.leave(world, host, group)),
            None => _ = world.with(host, |member, now| member.shut_down(now, groups)),
        }
        world.kill(host);
    }
}

impl fmt::Display for Churn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = 100.0 * self.replaced_per_minute;
        write!(f, "{percent} % replaced per minute, views {}", self.views)
    }
}

impl fmt::Display for Views {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Told { failures, others } => {
                write!(f, "reported within {:?}, failures {:?} later", others.0, failures.0)
            }
            Self::Gossip => f.write_str("by gossip"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lateral::Membership;

    #[test]
    fn as_many_are_there_at_any_time_and_half_of_those_who_go_crash() {
        let rate = RateOfFire::new(8, 5);
        let membership = Membership::Random { groups_per_node: 4, mean_size: 4, rate };
        let mut rng = Rng::new(3);
        let mut groups = membership.draw(20, &mut rng);
        let views =
            Views::Told { failures: Span(Duration::from_secs(3)), others: Span(Duration::ZERO) };
        let churn = Churn { replaced_per_minute: 0.3, views };
        let end = BEGINNING + Duration::from_secs(120);
        let (stays, changes) = churn.draw(&mut groups, Duration::from_secs(1), end, &mut rng);
        let count = |what| changes.iter().filter(|change| change.what == what).count();
        assert_eq!([What::Comes, What::Crashes, What::Leaves].map(count), [12, 6, 6]);
        assert_eq!((count(What::IsMissed), groups.hosts().count()), (6, 32));
        for second in 0..120 {
            let at = BEGINNING + Duration::from_secs(second);
            let there = (0..32).filter(|host| stays.is_there(*host, at));
            assert_eq!(there.count(), 20, "after {second} s");
        }
        let gone =
            changes.iter().find(|change| change.what == What::Leaves).expect("there are six");
        let before = |ms| gone.at.before(Duration::from_millis(ms));
        assert!(stays.owe(gone.host, before(1001)) && !stays.owe(gone.host, before(999)));
    }
}

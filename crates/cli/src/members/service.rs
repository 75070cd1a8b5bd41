//! Members of a group, or of all groups, as the registry knows them.

use std::time::{Duration, Instant};

use carom::{GroupId, ViewChangeKind};
use carom_registry::{Observation, ObservedChange, Observer, ObserverOptions};
use carom_terminal::interrupt::{self, Interrupt};
use carom_terminal::{CliError, Outcome, output};
use comfy_table::{Table, presets};
use serde::Serialize;

use crate::node;
use crate::registry::address;

pub(super) struct Question<'a> {
    pub(super) registries: &'a [String],
    pub(super) cluster: &'a str,
    pub(super) group: Option<&'a str>,
    pub(super) watch: bool,
    pub(super) json: bool,
}

#[derive(Serialize)]
struct Report<'a> {
    group: Option<&'a str>,
    away: bool,
    members: Vec<Member>,
    /// Changes since the previous report with `--watch`. Empty in the first report.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    changes: Vec<Change>,
}

#[derive(Serialize)]
struct Member {
    node: String,
    endpoint: String,
    incarnation: u32,
    groups: Vec<String>,
}

#[derive(Serialize)]
struct Change {
    change: &'static str,
    node: String,
    endpoint: String,
    incarnation: u32,
    group: String,
}

impl Question<'_> {
    pub(super) fn answer(&self) -> Result<Outcome, CliError> {
        let interrupt = interrupt::listen()?;
        let mut options = ObserverOptions::new(address::resolve(self.registries)?);
        self.cluster.clone_into(&mut options.cluster);
        options.group = self.group.map(str::to_owned);
        let observer = Observer::start(options)
            .map_err(|error| CliError::new(error.to_string(), error.fix()))?;
        let first = self.first(&observer, interrupt)?;
        self.show(&first)?;
        // Changes up to here are part of the first output or are reported with the next one.
        let mut was_current = first.is_current;
        while self.watch && !interrupt.wait(LOOK_EVERY) && !observer.has_ended() {
            let changes = observer.take_changes();
            let now = observer.observe();
            if changes.is_empty() && now.is_current == was_current {
                continue;
            }
            self.tell(&now, &changes, was_current)?;
            was_current = now.is_current;
        }
        Ok(Outcome::Fine)
    }

    /// Waits until the service has sent its complete state, for at most 5 s.
    fn first(&self, observer: &Observer, interrupt: &Interrupt) -> Result<Observation, CliError> {
        let give_up = Instant::now() + PATIENCE;
        loop {
            let seen = observer.observe();
            if seen.is_current {
                // Changes that led to this state are not reported.
                observer.take_changes();
                return Ok(observer.observe());
            }
            let fix = "start `carom registry` there, or use its address: --registry HOST:PORT";
            if let Some(why) = seen.refused {
                return Err(CliError::new(
                    why,
                    "pass the --cluster of the service and use its version, or try again later",
                ));
            }
            if Instant::now() >= give_up {
                let registries = self.registries.join(", ");
                let cause = format!("no answer from the registry at {registries}");
                return Err(CliError::new(cause, fix));
            }
            if interrupt.wait(STEP) {
                return Err(CliError::interrupted());
            }
        }
    }

    fn show(&self, seen: &Observation) -> Result<(), CliError> {
        if self.json {
            return output::json(&self.report(seen, &[]));
        }
        if seen.nodes.is_empty() {
            return output::lines(match self.group {
                Some(_) => "the group has no members",
                None => "no group has members",
            });
        }
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_header(["node", "endpoint", "incarnation", "groups"]);
        for node in &seen.nodes {
            table.add_row([
                node.node.to_string(),
                node.endpoint.to_string(),
                node.incarnation.to_string(),
                node.groups.len().to_string(),
            ]);
        }
        output::lines(&table.trim_fmt())
    }

    fn tell(
        &self,
        now: &Observation,
        changes: &[ObservedChange],
        was_current: bool,
    ) -> Result<(), CliError> {
        if self.json {
            return output::json(&self.report(now, changes));
        }
        if was_current && !now.is_current {
            output::say(format_args!(
                "the registry is unreachable: these are the last known members"
            ));
        }
        for change in changes {
            let kind = change.kind.view_change();
            let sign = if kind == ViewChangeKind::Joined { "+" } else { "-" };
            let how = node::change(kind);
            let group = self.name(change.group);
            let ObservedChange { node, endpoint, .. } = change;
            output::lines(&format!("{sign} {node} {endpoint} {how} {group}"))?;
        }
        if !was_current && now.is_current {
            output::say(format_args!(
                "the registry is reachable again: the members are up to date"
            ));
        }
        Ok(())
    }

    fn report(&self, seen: &Observation, changes: &[ObservedChange]) -> Report<'_> {
        let members = seen.nodes.iter().map(|node| Member {
            node: node.node.to_string(),
            endpoint: node.endpoint.to_string(),
            incarnation: node.incarnation,
            groups: node.groups.iter().map(|group| self.name(*group)).collect(),
        });
        let changes = changes.iter().map(|change| Change {
            change: node::change(change.kind.view_change()),
            node: change.node.to_string(),
            endpoint: change.endpoint.to_string(),
            incarnation: change.incarnation,
            group: self.name(change.group),
        });
        let (members, changes) = (members.collect(), changes.collect());
        Report { group: self.group, away: !seen.is_current, members, changes }
    }

    /// Returns the group's name, or its id if the name was not given: the service stores no names.
    fn name(&self, group: GroupId) -> String {
        let given = self.group.filter(|name| GroupId::of_name(name) == group);
        given.map_or_else(|| group.to_string(), str::to_owned)
    }
}

const STEP: Duration = Duration::from_millis(10);
const LOOK_EVERY: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(5);

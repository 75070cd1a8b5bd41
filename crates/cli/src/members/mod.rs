mod ring;
mod service;

use std::collections::BTreeMap;
use std::time::Duration;

use carom::Status;
use carom::blocking::Node;
use carom_terminal::interrupt::{self, Interrupt};
use carom_terminal::{CliError, Outcome, output, units};
use comfy_table::{Table, presets};
use serde::Serialize;

use self::ring::{Look, WATCH_EVERY};
use self::service::Question;
use crate::node::NodeArgs;

/// Show the other nodes, as an observer in no group; with GROUP, the rings and locks of an ordered
/// group; with --registry, the members that the registry knows
#[derive(clap::Args)]
#[command(after_help = EXAMPLE)]
pub(crate) struct Args {
    /// Ordered group to show (several rings while the network is partitioned); with --registry, any
    /// group [default: all groups]
    #[arg(value_parser = units::name)]
    group: Option<String>,
    /// Name of a lock of GROUP, to show it by name; may be repeated
    #[arg(long = "lock", value_name = "NAME", requires = "group", conflicts_with = "registries")]
    locks: Vec<String>,
    /// Maximum wait for a member of GROUP to answer
    #[arg(long, value_name = "TIME", default_value = "3s", allow_hyphen_values = true)]
    #[arg(value_parser = units::duration, requires = "group", conflicts_with = "registries")]
    timeout: Duration,
    #[command(flatten)]
    node: NodeArgs,
    /// Keep running and show every change, until Ctrl-C
    #[arg(long)]
    watch: bool,
    /// Print JSON: one object, or with --watch one per change
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    id: String,
    endpoint: String,
    interface: String,
    settled: bool,
    members: Vec<Member>,
}

#[derive(Clone, PartialEq, Eq, Serialize)]
struct Member {
    node: String,
    endpoint: String,
    path: String,
}

pub(crate) fn run(args: &Args) -> Result<Outcome, CliError> {
    let Args { node, locks, watch, json, .. } = args;
    let (timeout, watch, json) = (args.timeout, *watch, *json);
    if let Some((registries, cluster)) = node.service() {
        let group = args.group.as_deref();
        return Question { registries, cluster, group, watch, json }.answer();
    }
    if let Some(name) = &args.group {
        return Look { node, name, locks, timeout, watch, json }.run(interrupt::listen()?);
    }
    let interrupt = interrupt::listen()?;
    let node = node.start(node.builder(), interrupt)?;
    settle(&node, interrupt);
    let mut shown = Report::of(&node.status());
    show(&shown, json)?;
    while watch && !interrupt.wait(WATCH_EVERY) {
        let report = Report::of(&node.status());
        if report.members != shown.members {
            if json {
                output::json(&report)?;
            } else {
                output::lines(&changes(&shown, &report))?;
            }
            shown = report;
        }
    }
    node.close();
    Ok(Outcome::Fine)
}

/// Waits, for at most 5 s, until the node is settled and the number of nodes is stable for 500 ms.
fn settle(node: &Node, interrupt: &Interrupt) {
    let mut quiet = Duration::ZERO;
    let mut waited = Duration::ZERO;
    let mut known = 0;
    while waited < SETTLE_LIMIT && !(node.status().settled && quiet >= SETTLE_QUIET) {
        if interrupt.wait(STEP) {
            return;
        }
        let count = node.status().members.len();
        quiet = if count == known { quiet + STEP } else { Duration::ZERO };
        known = count;
        waited += STEP;
    }
}

impl Report {
    fn of(status: &Status) -> Self {
        let mut members: Vec<Member> = status
            .members
            .iter()
            .map(|member| Member {
                node: member.node.to_string(),
                endpoint: member.endpoint.to_string(),
                path: member.path.to_string(),
            })
            .collect();
        members.sort_by(|a, b| a.node.cmp(&b.node));
        Self {
            id: status.id.to_string(),
            endpoint: status.endpoint.to_string(),
            interface: status.interface.clone(),
            settled: status.settled,
            members,
        }
    }
}

fn show(report: &Report, json: bool) -> Result<(), CliError> {
    if json {
        return output::json(report);
    }
    output::say(format_args!(
        "this node: {} at {} ({})",
        report.id, report.endpoint, report.interface
    ));
    if report.members.is_empty() {
        return output::lines("no other node is online");
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["node", "endpoint", "path"]);
    for member in &report.members {
        table.add_row([&member.node, &member.endpoint, &member.path]);
    }
    output::lines(&table.trim_fmt())
}

fn changes(before: &Report, after: &Report) -> String {
    let by_node = |report: &Report| -> BTreeMap<String, Member> {
        report.members.iter().map(|member| (member.node.clone(), member.clone())).collect()
    };
    let (before, after) = (by_node(before), by_node(after));
    let line = |sign: &str, member: &Member| {
        format!("{sign} {} {} {}", member.node, member.endpoint, member.path)
    };
    let gone = before.iter().filter(|(node, _)| !after.contains_key(*node));
    let gone = gone.map(|(_, member)| line("-", member));
    let news = after.iter().filter(|(node, member)| before.get(*node) != Some(member));
    let news =
        news.map(|(node, member)| line(if before.contains_key(node) { "=" } else { "+" }, member));
    gone.chain(news).collect::<Vec<_>>().join("\n")
}

const STEP: Duration = Duration::from_millis(50);
const SETTLE_QUIET: Duration = Duration::from_millis(500);
const SETTLE_LIMIT: Duration = Duration::from_secs(5);
const EXAMPLE: &str = "Examples:
  carom members
  carom members --seed 10.0.0.1:7400 --watch --json
  carom members accounts --lock nightly
  carom members --registry 10.0.0.5
  carom members prices --registry 10.0.0.5 --watch

Exit codes: 0 success, 1 GROUP has no members, 2 usage or environment error";

#[cfg(test)]
mod tests {
    use super::*;

    fn report(members: &[(&str, &str)]) -> Report {
        let member = |(node, path): &(&str, &str)| Member {
            node: (*node).to_owned(),
            endpoint: "10.0.0.1:7400".to_owned(),
            path: (*path).to_owned(),
        };
        Report {
            id: "0".to_owned(),
            endpoint: String::new(),
            interface: String::new(),
            settled: true,
            members: members.iter().map(member).collect(),
        }
    }

    #[test]
    fn change_lists_new_gone_and_differently_reached_members() {
        let before = report(&[("a", "unknown"), ("b", "unicast")]);
        let after = report(&[("a", "multicast"), ("c", "unknown")]);
        let told = changes(&before, &after);
        let firsts: Vec<&str> = told.lines().map(|line| &line[..3]).collect();
        assert_eq!(firsts, ["- b", "= a", "+ c"]);
    }
}

use std::time::{Duration, Instant};

use carom::blocking::Node;
use carom::{Epoch, Process};
use carom::{NodeId, RingStatus};
use carom_terminal::interrupt::{self, Interrupt};
use carom_terminal::units::{self, UnitError};
use carom_terminal::{CliError, Outcome, counted, output};
use serde_json::json;

use super::news;
use crate::node::NodeArgs;

/// Let a ring continue after it has lost a majority of its voters permanently; without --yes, only
/// show which are lost
///
/// Stop the lost voters first. If one of them still works elsewhere, there are two rings from then
/// on, each with its own order and its own locks.
#[derive(clap::Args)]
#[command(after_help = EXAMPLE)]
pub(crate) struct Args {
    /// Group name
    #[arg(value_parser = units::name)]
    group: String,
    /// View to continue, as shown without --yes
    #[arg(long, value_name = "VIEW", value_parser = epoch, requires = "yes")]
    view: Option<Epoch>,
    /// All lost voters of that view, separated by commas
    #[arg(long, value_name = "NODE", value_parser = node, value_delimiter = ',')]
    #[arg(requires = "yes")]
    lost: Vec<NodeId>,
    /// Force the quorum; requires --view, and --lost if voters of this view are lost
    #[arg(long, requires = "view")]
    yes: bool,
    /// Maximum wait for the members
    #[arg(long, value_name = "TIME", default_value = "10s", allow_hyphen_values = true)]
    #[arg(value_parser = units::duration)]
    timeout: Duration,
    /// Print JSON: one object per ring
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    node: NodeArgs,
}

impl Args {
    pub(super) fn run(&self) -> Result<Outcome, CliError> {
        let interrupt = interrupt::listen()?;
        let node = self.node.start(self.node.builder(), interrupt)?;
        crate::node::settle(&node, interrupt)?;
        let done = self.run_as(&node, interrupt);
        node.close();
        done
    }

    fn run_as(&self, node: &Node, interrupt: &Interrupt) -> Result<Outcome, CliError> {
        let rings = self.look(node, interrupt)?;
        let Some(epoch) = self.view else {
            for ring in &rings {
                self.show(node, ring)?;
            }
            return Ok(Outcome::of(
                rings.iter().any(|ring| !ring.view.has_quorum() || !ring.is_working),
            ));
        };
        let ring = rings.iter().find(|ring| ring.view.epoch == epoch).ok_or_else(|| {
            let seen: Vec<String> = rings.iter().map(|ring| view_id(ring.view.epoch)).collect();
            let cause = format!("no ring has view {}; found {}", view_id(epoch), seen.join(", "));
            CliError::new(
                cause,
                "run it without --yes to show the current view and the lost voters",
            )
        })?;
        if ring.view.electorate().is_none() {
            let fix = "restart the remaining members: they were started without --quorum-of";
            return Err(CliError::new(format!("group '{}' has no electorate", self.group), fix));
        }
        output::say(format_args!(
            "warning: forcing the quorum of {}: if a lost voter still works elsewhere, order and \
             locks are split from now on",
            self.group
        ));
        let started = Instant::now();
        while started.elapsed() < self.timeout {
            node.force_quorum(&self.group, epoch, &self.lost);
            if interrupt.wait(AGAIN) {
                return Err(CliError::interrupted());
            }
            let now = self.look(node, interrupt)?;
            if let Some(ring) = now.iter().find(|ring| ring.view.is_forced && ring.is_working) {
                self.show(node, ring)?;
                return Ok(Outcome::Fine);
            }
        }
        let cause = format!("the ring of {} did not continue in time", self.group);
        Err(CliError::new(cause, "pass --lost with every lost voter, and no voter that is online"))
    }

    fn look(&self, node: &Node, interrupt: &Interrupt) -> Result<Vec<RingStatus>, CliError> {
        let rings = super::look(node, &self.group, self.timeout, interrupt)?;
        if rings.is_empty() {
            let cause = format!("group '{}' has no members", self.group);
            return Err(CliError::new(
                cause,
                "check the group name, and name a running node with --seed HOST:PORT",
            ));
        }
        Ok(rings)
    }

    fn show(&self, node: &Node, ring: &RingStatus) -> Result<(), CliError> {
        let present = node.status().members;
        let is_there = |voter: &NodeId| present.iter().any(|member| member.node == *voter);
        let voters = ring.view.voters().map(|voter| voter.node);
        let (here, lost): (Vec<NodeId>, Vec<NodeId>) = voters.partition(is_there);
        let needed = news::needed(&ring.view);
        let is_working = ring.is_working && (ring.view.has_quorum() || ring.view.is_forced);
        if self.json {
            return output::json(&json!({
                "group": self.group,
                "view": view_id(ring.view.epoch),
                "electorate": ring.view.electorate(),
                "needed": needed,
                "voters": names(&here),
                "lost": names(&lost),
                "working": is_working,
                "forced": ring.view.is_forced,
            }));
        }
        let mut text = format!("ring of {}: view {}\n", self.group, view_id(ring.view.epoch));
        if is_working {
            let how = if ring.view.is_forced { " (forced)" } else { "" };
            let voters = counted(here.len(), "voter");
            return output::lines(&format!("{text}working{how}, with {voters}"));
        }
        let lost = names(&lost).join(",");
        text += &format!("{}\n", news::waiting_for_quorum(here.len(), needed));
        text += &format!("online: {}\n", names(&here).join(","));
        let flag = if lost.is_empty() { String::new() } else { format!(" --lost {lost}") };
        text +=
            &format!("lost: {}\n", if lost.is_empty() { "no voter of this view" } else { &lost });
        text += &format!(
            "to continue without the lost voters: carom ring force-quorum {} --view {}{flag} --yes",
            self.group,
            view_id(ring.view.epoch)
        );
        output::lines(&text)
    }
}

fn names(nodes: &[NodeId]) -> Vec<String> {
    nodes.iter().map(ToString::to_string).collect()
}

fn view_id(epoch: Epoch) -> String {
    let Epoch { version, creator } = epoch;
    format!("{version}@{}.{:x}", creator.node, creator.life)
}

fn epoch(text: &str) -> Result<Epoch, UnitError> {
    let parts = text.split_once('@').and_then(|(version, creator)| {
        let (node, life) = creator.split_once('.')?;
        let [node, life] = [node, life].map(|digits| u64::from_str_radix(digits, 16).ok());
        let creator = Process { node: NodeId(node?), life: life? };
        Some(Epoch { version: version.parse().ok()?, creator })
    });
    parts.ok_or_else(|| UnitError {
        cause: format!("view '{text}' is invalid"),
        fix: "copy it from the output without --yes, such as 2@00000000000000aa.3c5a0000000001"
            .to_owned(),
    })
}

fn node(text: &str) -> Result<NodeId, UnitError> {
    u64::from_str_radix(text, 16).map(NodeId).map_err(|_| UnitError {
        cause: format!("node '{text}' is invalid: expected 16 hexadecimal digits"),
        fix: "copy the id from the output of `carom members`".to_owned(),
    })
}

const AGAIN: Duration = Duration::from_millis(300);
const EXAMPLE: &str = "Example:
  carom ring force-quorum accounts
  carom ring force-quorum accounts --view 2@3eb59cd23f890774.4d1f9a7702000001 \\
    --lost 864c0d2f90b1a377 --yes

Exit codes: 0 the ring works, 1 it does not work and nothing was changed, 2 usage or environment
error";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_is_read_as_it_is_shown() {
        let creator = Process { node: NodeId(0xaa), life: 0x003c_5a00_0000_0001 };
        let named = Epoch { version: 2, creator };
        assert_eq!(view_id(named), "2@00000000000000aa.3c5a0000000001");
        assert_eq!(epoch(&view_id(named)), Ok(named));
        for wrong in ["", "2", "2@", "2@xy.1", "x@aa.1", "2@aa"] {
            assert!(epoch(wrong).is_err(), "{wrong}");
        }
        assert!(node("864c0d2f90b1a377").is_ok() && node("nobody").is_err());
    }
}

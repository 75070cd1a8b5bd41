//! Rings of an ordered group: the token holder, and the holder and queue of each lock.

use std::collections::BTreeMap;
use std::time::Duration;

use carom::{LockName, Process};
use carom::{NodeId, RingStatus, Status};
use carom_terminal::interrupt::Interrupt;
use carom_terminal::{CliError, Outcome, counted, output};
use comfy_table::{Table, presets};
use serde_json::{Value, json};

use crate::node::NodeArgs;
use crate::ring;

pub(super) struct Look<'a> {
    pub(super) node: &'a NodeArgs,
    pub(super) name: &'a str,
    pub(super) locks: &'a [String],
    pub(super) timeout: Duration,
    pub(super) watch: bool,
    pub(super) json: bool,
}

impl Look<'_> {
    pub(super) fn run(&self, interrupt: &Interrupt) -> Result<Outcome, CliError> {
        let node = self.node.start(self.node.builder(), interrupt)?;
        let look = || ring::look(&node, self.name, self.timeout, interrupt);
        let mut shown = look()?;
        self.show(&node.status(), &shown)?;
        while self.watch && !interrupt.wait(WATCH_EVERY) {
            let now = match look() {
                Err(error) if error.is_interruption() => break,
                now => now?,
            };
            if !are_alike(&shown, &now) {
                self.show(&node.status(), &now)?;
                shown = now;
            }
        }
        node.close();
        Ok(Outcome::of(shown.is_empty() && !self.watch))
    }

    fn show(&self, status: &Status, rings: &[RingStatus]) -> Result<(), CliError> {
        if rings.is_empty() {
            output::say(format_args!(
                "group '{}' has no members: {}",
                self.name,
                why_nobody(status.members.len())
            ));
        }
        if self.json {
            let rings: Vec<Value> = rings.iter().map(|ring| self.object(status, ring)).collect();
            return output::json(&json!({ "group": self.name, "rings": rings }));
        }
        let rings: Vec<String> = rings.iter().map(|ring| self.text(status, ring)).collect();
        if rings.is_empty() { Ok(()) } else { output::lines(&rings.join("\n\n")) }
    }

    fn object(&self, status: &Status, ring: &RingStatus) -> Value {
        let mut object = ring::news::view(&ring.view);
        let endpoints = endpoints(status);
        let members = ring.view.members.iter().map(|member| {
            let node = member.process.node;
            json!({
                "node": node.to_string(),
                "life": format!("{:x}", member.process.life),
                "endpoint": endpoints.get(&node),
                "token": member.process == ring.token,
                "voter": ring.view.is_voter(member.process),
            })
        });
        object["members"] = members.collect::<Vec<Value>>().into();
        object["working"] = ring.is_working.into();
        for lock in object["locks"].as_array_mut().into_iter().flatten() {
            let name = self.locks.iter().find(|name| lock["lock"] == shown(name));
            lock["name"] = name.map(String::as_str).into();
        }
        object
    }

    fn text(&self, status: &Status, ring: &RingStatus) -> String {
        let view = &ring.view;
        let mut text = format!(
            "ring of {}: view {}.{}, {}, {} required to continue\n",
            self.name,
            view.epoch.version,
            view.version,
            counted(view.len(), "member"),
            ring::news::needed(view)
        );
        if let Some(electorate) = view.electorate() {
            let voters = view.voters().count();
            text += &format!("{voters} of {electorate} voters; the other members are clients\n");
        }
        if view.is_forced {
            text += "an operator has forced the quorum\n";
        }
        if !view.has_quorum() {
            let (voters, needed) = (view.voters().count(), ring::news::needed(view));
            text += &format!("{}\n", ring::news::waiting_for_quorum(voters, needed));
        } else if !ring.is_working {
            text += "not working: members are missing or being replaced\n";
        }
        let endpoints = endpoints(status);
        let mut members = Table::new();
        members.load_style(presets::NOTHING).set_header(["turn", "node", "endpoint", "token"]);
        for (place, process) in view.processes().enumerate() {
            let endpoint = endpoints.get(&process.node).cloned().unwrap_or_default();
            let token = if process == ring.token { "here" } else { "" };
            let turn = (place + 1).to_string();
            members.add_row([turn, process.node.to_string(), endpoint, token.to_owned()]);
        }
        text += &members.trim_fmt();
        if view.locks.is_empty() {
            return text + "\nno lock is held";
        }
        let mut locks = Table::new();
        locks.load_style(presets::NOTHING).set_header(["lock", "holder", "waiting"]);
        for (lock, holder) in view.locks.held() {
            let waiting: Vec<String> = view.locks.waiting(lock).map(named).collect();
            let waiting = if waiting.is_empty() { "none".to_owned() } else { waiting.join(", ") };
            locks.add_row([self.lock_name(lock), named(holder), waiting]);
        }
        text + "\n" + &locks.trim_fmt()
    }

    fn lock_name(&self, lock: LockName) -> String {
        let given = self.locks.iter().find(|name| LockName::of_name(name) == lock);
        given.map_or_else(|| lock.to_string(), Clone::clone)
    }
}

fn shown(name: &str) -> String {
    LockName::of_name(name).to_string()
}

fn named(process: Process) -> String {
    process.node.to_string()
}

fn endpoints(status: &Status) -> BTreeMap<NodeId, String> {
    status.members.iter().map(|member| (member.node, member.endpoint.to_string())).collect()
}

/// Returns `true` if the rings are equal, apart from the position of the token.
fn are_alike(before: &[RingStatus], after: &[RingStatus]) -> bool {
    let pairs = || before.iter().zip(after);
    before.len() == after.len()
        && pairs().all(|(a, b)| (&a.view, a.is_working) == (&b.view, b.is_working))
}

fn why_nobody(others: usize) -> String {
    match others {
        0 => "no other node is online".to_owned(),
        1 => "the only other node did not answer".to_owned(),
        _ => format!("none of the {others} other nodes answered"),
    }
}

pub(super) const WATCH_EVERY: Duration = Duration::from_millis(200);

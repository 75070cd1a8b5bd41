//! The ring of an ordered group: whose turn it is, who holds which lock, and who waits for it.

use std::collections::BTreeMap;

use carom::rmp::{LockName, Process};
use carom::{Event, Group, Node, NodeId, RingNews, RingStatus, Status};
use comfy_table::{Table, presets};
use serde_json::{Value, json};

use super::{Args, WATCH_EVERY};
use crate::error::{CliError, Outcome};
use crate::interrupt::Interrupt;
use crate::node;
use crate::output;
use crate::ring::{self, RingWatch};

/// A look at one ring. Only members know it, so this node is one while it looks.
pub(super) struct Look<'a> {
    pub(super) args: &'a Args,
    pub(super) name: &'a str,
}

impl Look<'_> {
    /// Looks once, or until Ctrl-C.
    ///
    /// # Errors
    /// If the group cannot be joined.
    pub(super) fn run(&self, interrupt: &Interrupt) -> Result<Outcome, CliError> {
        let node = self.args.node.start(self.args.node.builder(), interrupt)?;
        let group = ring::join(&node, self.name, self.args.ring.profile(), interrupt)?;
        self.show(&node.status(), &group)?;
        let mut watch = RingWatch::new(node.id());
        while self.args.watch && !interrupt.wait(WATCH_EVERY) {
            if self.has_changed(&node, &group, &mut watch)? {
                self.show(&node.status(), &group)?;
            }
        }
        group.leave();
        node.close();
        Ok(Outcome::Fine)
    }

    /// Takes the events; whether there was a change of the ring among them.
    fn has_changed(
        &self,
        node: &Node,
        group: &Group,
        watch: &mut RingWatch,
    ) -> Result<bool, CliError> {
        let mut has_changed = false;
        while let Some(event) = group.try_recv() {
            if let Event::Ring(event) = event {
                watch.tell(&event.news);
                has_changed |= matches!(event.news, RingNews::View(_));
            }
        }
        let is_open = node.status().groups.iter().any(|it| it.id == group.id());
        if is_open { Ok(has_changed) } else { Err(node::closed(node, self.name)) }
    }

    fn show(&self, status: &Status, group: &Group) -> Result<(), CliError> {
        let ring = status.groups.iter().find(|it| it.id == group.id());
        let Some(ring) = ring.and_then(|it| it.ring.as_ref()) else { return Ok(()) };
        if self.args.json {
            return output::json(&self.object(status, ring));
        }
        output::lines(&self.text(status, ring))
    }

    fn object(&self, status: &Status, ring: &RingStatus) -> Value {
        let mut object = ring::news::view(&ring.view);
        let endpoints = endpoints(status);
        let members = ring.view.members.iter().map(|member| {
            let node = member.process.node;
            json!({
                "node": node.to_string(),
                "life": member.process.life,
                "endpoint": endpoints.get(&node),
                "token": member.process == ring.token,
                "observer": node == status.id,
            })
        });
        object["members"] = members.collect::<Vec<Value>>().into();
        object["group"] = self.name.into();
        for lock in object["locks"].as_array_mut().into_iter().flatten() {
            let name = self.args.locks.iter().find(|name| lock["lock"] == shown(name));
            lock["name"] = name.map(String::as_str).into();
        }
        object
    }

    fn text(&self, status: &Status, ring: &RingStatus) -> String {
        let view = &ring.view;
        let mut text = format!(
            "ring of {}: view {}.{}, {} members, of which it takes {} to go on\n",
            self.name,
            view.epoch.version,
            view.version,
            view.len(),
            view.least()
        );
        let endpoints = endpoints(status);
        let mut members = Table::new();
        members.load_style(presets::NOTHING).set_header(["turn", "node", "endpoint", "token"]);
        for (place, process) in view.processes().enumerate() {
            let here = if process.node == status.id { " (this node)" } else { "" };
            let endpoint = endpoints.get(&process.node).cloned().unwrap_or_default();
            let token = if process == ring.token { "here" } else { "" };
            let turn = (place + 1).to_string();
            members.add_row([turn, process.node.to_string(), endpoint + here, token.to_owned()]);
        }
        text += &members.trim_fmt();
        if view.locks.is_empty() {
            return text + "\nno lock is held";
        }
        let mut locks = Table::new();
        locks.load_style(presets::NOTHING).set_header(["lock", "holder", "waiting"]);
        for (lock, holder) in view.locks.held() {
            let waiting: Vec<String> = view.locks.waiting(lock).map(named).collect();
            let waiting = if waiting.is_empty() { "nobody".to_owned() } else { waiting.join(", ") };
            locks.add_row([self.lock_name(lock), named(holder), waiting]);
        }
        text + "\n" + &locks.trim_fmt()
    }

    /// The name if it was given: of a lock only the hash of its name is known.
    fn lock_name(&self, lock: LockName) -> String {
        let given = self.args.locks.iter().find(|name| LockName::of_name(name) == lock);
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
    let others = status.members.iter().map(|member| (member.node, member.endpoint.to_string()));
    others.chain([(status.id, status.endpoint.to_string())]).collect()
}

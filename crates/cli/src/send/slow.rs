//! Receivers that slow down other receivers, and their names.

use std::net::IpAddr;

use carom::{Limiting, NodeId};
use serde_json::json;

use super::Sender;
use super::summary::SlowReceiver;
use crate::transfer;

impl Sender<'_> {
    pub(super) fn on_limiting(&self, limiting: &Limiting) {
        let (node, percent) = (limiting.node, limiting.percent_of_others());
        let who = self.called(node);
        let and = match limiting.is_left_behind {
            true => "evicted; it fetches the missing data",
            false => "waiting for it",
        };
        self.bar.line(&format!("{who} slows the others down to {percent} %; {and}"));
        if !limiting.is_left_behind {
            self.bar.say(format!("waiting for {who}"));
        }
        self.note_slow(node, |it| {
            it.percent_of_others = it.percent_of_others.min(percent);
            it.is_left_behind |= limiting.is_left_behind;
        });
        let event = json!({
            "event": "slow",
            "receiver": self.name_of(node),
            "node": node.to_string(),
            "percent_of_others": percent,
            "left_behind": limiting.is_left_behind,
        });
        transfer::emit(self.args.json, &event);
    }

    pub(super) fn note_slow(&self, node: NodeId, note: impl FnOnce(&mut SlowReceiver)) {
        let mut slow = self.slow.borrow_mut();
        if slow.len() >= MOST_SLOW && !slow.contains_key(&node) {
            return;
        }
        note(slow.entry(node).or_insert_with(|| SlowReceiver {
            receiver: self.name_of(node),
            called: self.called(node),
            percent_of_others: 100,
            is_left_behind: false,
        }));
    }

    /// Formats a node as its id, with the name of the receiver if it is the only one on its host.
    pub(super) fn called(&self, node: NodeId) -> String {
        let rows = self.handle.receivers();
        let rows = rows.iter().map(|row| (row.host, &*row.name));
        called(&node.to_string(), self.host_of(node), rows)
    }

    pub(super) fn name_of(&self, node: NodeId) -> Option<String> {
        let host = self.host_of(node)?;
        let rows = self.handle.receivers();
        let mut there = rows.into_iter().filter(|row| row.host == host);
        let first = there.next()?;
        there.next().is_none().then_some(first.name)
    }

    fn host_of(&self, node: NodeId) -> Option<IpAddr> {
        let members = self.node.status().members;
        members.iter().find(|it| it.node == node).map(|it| it.endpoint.ip())
    }
}

fn called<'a>(
    node: &str,
    host: Option<IpAddr>,
    receivers: impl Iterator<Item = (IpAddr, &'a str)>,
) -> String {
    let mut there = receivers.filter(|(at, _)| Some(*at) == host);
    match (there.next(), there.next(), host) {
        (Some((_, name)), None, _) => format!("{name} (node {node})"),
        (_, _, Some(host)) => format!("node {node} at {host}"),
        _ => format!("node {node}"),
    }
}

const MOST_SLOW: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_has_the_name_of_the_only_receiver_on_its_host() {
        let ip = |last| IpAddr::from([10, 0, 0, last]);
        let receivers = [(ip(1), "one"), (ip(2), "two"), (ip(2), "more")];
        let called = |host| called("07", host, receivers.into_iter());
        assert_eq!(called(Some(ip(1))), "one (node 07)");
        assert_eq!(called(Some(ip(2))), "node 07 at 10.0.0.2");
        assert_eq!(called(Some(ip(3))), "node 07 at 10.0.0.3");
        assert_eq!(called(None), "node 07");
    }
}

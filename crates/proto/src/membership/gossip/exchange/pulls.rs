use alloc::collections::BTreeMap;
use core::time::Duration;

use crate::NodeId;
use crate::membership::gossip::context::{Context, Timer};
use crate::membership::gossip::packet::{self, Packet, Wanted};
use crate::membership::gossip::peers::Peers;

#[derive(Default)]
pub(super) struct Pulls {
    pulls: BTreeMap<NodeId, Pull>,
    rows_in_flight: usize,
}

struct Pull {
    version: u32,
    rows: usize,
    tries: u32,
    in_flight: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Waits,
    Continues,
    Complete,
}

/// Maximum number of rows requested at a time, so that the answers fit in a receive buffer.
const ROWS_IN_FLIGHT: usize = 2_000;
/// After this number of tries, a pull waits for the next digest that shows the gap.
const PULL_TRIES: u32 = 10;
pub(super) const LONGEST_PATIENCE: Duration = Duration::from_secs(1);

impl Pulls {
    pub(super) fn want(&mut self, node: NodeId, version: u32, rows: usize) {
        let rows = rows.clamp(1, ROWS_IN_FLIGHT);
        let new = Pull { version, rows, tries: 0, in_flight: false };
        let pull = self.pulls.entry(node).or_insert(new);
        pull.version = pull.version.max(version);
    }

    pub(super) fn start(
        &mut self,
        cx: &mut Context,
        peers: &Peers,
        gaps: impl Fn(NodeId, u32) -> Vec<Wanted>,
    ) {
        let mut by_node: BTreeMap<NodeId, Vec<Wanted>> = BTreeMap::new();
        for (node, pull) in &mut self.pulls {
            let rows = self.rows_in_flight;
            if pull.in_flight || (rows > 0 && rows + pull.rows > ROWS_IN_FLIGHT) {
                continue;
            }
            pull.in_flight = true;
            self.rows_in_flight += pull.rows;
            let patience = cx.config.retry_after * 2_u32.pow(pull.tries);
            cx.timers.set(Timer::Pull(*node), cx.now + patience.min(LONGEST_PATIENCE));
            by_node.insert(*node, gaps(*node, pull.version));
        }
        let capacity = packet::pull_capacity(cx.config.max_datagram_bytes);
        for (node, wanted) in by_node {
            let Some(to) = peers.identity(node) else { continue };
            for part in wanted.chunks(capacity) {
                cx.send(to.endpoint, &Packet::Pull(part.to_vec()));
            }
        }
    }

    /// Processes an answer after which the changes up to `version` are known.
    pub(super) fn on_answer(
        &mut self,
        cx: &mut Context,
        node: NodeId,
        version: u32,
        more: bool,
    ) -> Progress {
        match self.pulls.get_mut(&node) {
            Some(pull) if pull.version <= version => {
                self.stop(cx, node);
                Progress::Complete
            }
            Some(pull) if more => {
                pull.tries = 0;
                self.pause(cx, node);
                Progress::Continues
            }
            _ => Progress::Waits,
        }
    }

    pub(super) fn on_timeout(&mut self, cx: &mut Context, node: NodeId) {
        self.pause(cx, node);
        if let Some(pull) = self.pulls.get_mut(&node) {
            pull.tries += 1;
            if pull.tries >= PULL_TRIES {
                cx.counters.pulls_given_up += 1;
                self.stop(cx, node);
            }
        }
    }

    pub(super) fn stop(&mut self, cx: &mut Context, node: NodeId) {
        self.pause(cx, node);
        self.pulls.remove(&node);
    }

    pub(super) fn check(&self, cx: &Context, peers: &Peers) {
        let in_flight = self.pulls.values().filter(|pull| pull.in_flight);
        let rows: usize = in_flight.map(|pull| pull.rows).sum();
        assert_eq!(rows, self.rows_in_flight, "rows in flight are miscounted");
        for (node, pull) in &self.pulls {
            assert!(peers.is_live(*node), "a pull waits for a dead node");
            let timed = cx.timers.is_set(Timer::Pull(*node));
            assert_eq!(timed, pull.in_flight, "a pull is not watched");
        }
        let waiting = self.pulls.values().any(|pull| !pull.in_flight);
        assert!(!waiting || rows > 0, "pulls wait for nothing");
    }

    fn pause(&mut self, cx: &mut Context, node: NodeId) {
        cx.timers.cancel(Timer::Pull(node));
        if let Some(pull) = self.pulls.get_mut(&node)
            && pull.in_flight
        {
            pull.in_flight = false;
            self.rows_in_flight -= pull.rows;
        }
    }
}

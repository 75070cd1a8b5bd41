//! Farewells: the end of a stream whose sender yields to another one. The receivers follow the
//! other sender and do not get the last packets. The sender therefore sends the end of the stream
//! to each of them until it is acknowledged.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use super::around::Around;
use super::epochs;
use super::packet::Packet;
use crate::{NodeId, Time};

/// The ends of streams that this node has given up.
#[derive(Debug, Default)]
pub(super) struct Farewells(VecDeque<Farewell>);

/// The end of one stream.
#[derive(Debug)]
struct Farewell {
    stream: u32,
    end: u64,
    /// Epoch of the places at the end.
    epoch: u32,
    /// Receivers that have not acknowledged the end, with the number of transmissions and the time
    /// of the next one.
    untold: BTreeMap<NodeId, (u32, Time)>,
    /// Receivers that have acknowledged the end, or had everything.
    told: Vec<NodeId>,
}

impl Farewells {
    /// Adds the end of a stream. The `members` may lack packets of it, except for those in `whole`.
    pub(super) fn push(
        &mut self,
        now: Time,
        (stream, end, epoch): (u32, u64, u32),
        members: impl Iterator<Item = NodeId>,
        whole: Vec<NodeId>,
    ) {
        if self.0.len() == MOST {
            self.0.pop_front();
        }
        let untold = members.filter(|it| !whole.contains(it)).map(|it| (it, (0, now))).collect();
        self.0.push_back(Farewell { stream, end, epoch, untold, told: whole });
    }

    /// Adds a node that is a member again, and may not have received the ends.
    pub(super) fn on_joined(&mut self, now: Time, node: NodeId) {
        for farewell in self.0.iter_mut().filter(|it| !it.told.contains(&node)) {
            farewell.untold.entry(node).or_insert((0, now));
        }
    }

    /// Removes a node that is no longer a member.
    pub(super) fn on_gone(&mut self, node: NodeId) {
        for farewell in &mut self.0 {
            farewell.untold.remove(&node);
        }
    }

    /// Records that a node has acknowledged the end of a stream.
    pub(super) fn on_heard(&mut self, stream: u32, node: NodeId) {
        let its = self.0.iter_mut().filter(|it| it.stream == stream);
        for farewell in its {
            if farewell.untold.remove(&node).is_some() && farewell.told.len() < MOST_TOLD {
                farewell.told.push(node);
            }
        }
    }

    /// Sends the farewells that are due.
    pub(super) fn handle_timeout(&mut self, around: &mut Around<'_>) {
        let (now, stream) = (around.now, around.stream);
        let every = around.config.report_every;
        for farewell in &mut self.0 {
            around.stream = farewell.stream;
            for (node, (count, due)) in farewell.untold.iter_mut().filter(|it| it.1.1 <= now) {
                *due = now + pause(every, *count);
                *count += 1;
                around.counters.farewells_sent += 1;
                let (end, epoch) = (farewell.end, farewell.epoch);
                around.unicast(*node, &Packet::Farewell { epoch, end });
            }
            farewell.untold.retain(|_, (count, _)| *count < MOST_TIMES);
        }
        around.stream = stream;
    }

    /// Returns the number of missing acknowledgments, over all streams.
    pub(super) fn pending(&self) -> usize {
        self.0.iter().map(|farewell| farewell.untold.len()).sum()
    }

    /// Returns when [`Farewells::handle_timeout`] is to be called.
    pub(super) fn poll_timeout(&self) -> Time {
        let due = self.0.iter().flat_map(|it| it.untold.values());
        due.map(|(_, at)| *at).min().unwrap_or(Time::MAX)
    }
}

/// Returns `true` if a farewell's epoch, `told`, is near the `epoch` of the node's last place in
/// the stream.
pub(super) fn is_of(epoch: u32, told: u32) -> bool {
    epochs::are_near(epoch, told)
}

fn pause(every: Duration, count: u32) -> Duration {
    every * (1 << count.min(MOST_DOUBLINGS))
}

/// Maximum number of streams whose ends are sent.
const MOST: usize = 8;
/// Maximum number of receivers that are remembered as having acknowledged one end.
const MOST_TOLD: usize = 4096;
/// Maximum number of transmissions to one member: ten minutes with the default times.
const MOST_TIMES: u32 = 500;
/// Maximum number of doublings of the pause between transmissions: up to 1.3 s.
const MOST_DOUBLINGS: u32 = 6;

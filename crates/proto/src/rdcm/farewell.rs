//! A sender that gives way to another one tells its receivers where its stream ends, until each has
//! heard it: they follow the other one, and do not hear its last packets.

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
    /// The epoch of the places at the end.
    epoch: u32,
    /// Who has not heard of it yet, how often it was told, and when it is told again.
    untold: BTreeMap<NodeId, (u32, Time)>,
    /// Who has heard of it, or had all.
    told: Vec<NodeId>,
}

impl Farewells {
    /// A stream has ended; `members` may lack something of it, and `whole` do not.
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

    /// A node is a member again: it may have heard of no end.
    pub(super) fn on_joined(&mut self, now: Time, node: NodeId) {
        for farewell in self.0.iter_mut().filter(|it| !it.told.contains(&node)) {
            farewell.untold.entry(node).or_insert((0, now));
        }
    }

    /// A node is no member any more, or not for now.
    pub(super) fn on_gone(&mut self, node: NodeId) {
        for farewell in &mut self.0 {
            farewell.untold.remove(&node);
        }
    }

    /// A node has heard of the end of a stream.
    pub(super) fn on_heard(&mut self, stream: u32, node: NodeId) {
        let its = self.0.iter_mut().filter(|it| it.stream == stream);
        for farewell in its {
            if farewell.untold.remove(&node).is_some() && farewell.told.len() < MOST_TOLD {
                farewell.told.push(node);
            }
        }
    }

    /// Tells the ends that are due.
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

    /// Returns the number of acknowledgements that have not come, over all streams.
    pub(super) fn pending(&self) -> usize {
        self.0.iter().map(|farewell| farewell.untold.len()).sum()
    }

    /// When [`Farewells::handle_timeout`] is to be called.
    pub(super) fn poll_timeout(&self) -> Time {
        let due = self.0.iter().flat_map(|it| it.untold.values());
        due.map(|(_, at)| *at).min().unwrap_or(Time::MAX)
    }
}

/// Whether a farewell is of the stream in which the node had a place of epoch `epoch`.
pub(super) fn is_of(epoch: u32, told: u32) -> bool {
    epochs::are_near(epoch, told)
}

fn pause(every: Duration, count: u32) -> Duration {
    every * (1 << count.min(MOST_DOUBLINGS))
}

/// Streams whose ends are told.
const MOST: usize = 8;
/// Receivers that are known to have heard of one.
const MOST_TOLD: usize = 4096;
/// An end is told so often to one member: with the default times for ten minutes.
const MOST_TIMES: u32 = 500;
/// The time until it is told again is doubled so often: to 1.3 s.
const MOST_DOUBLINGS: u32 = 6;

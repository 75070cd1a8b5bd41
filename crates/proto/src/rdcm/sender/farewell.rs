//! Farewells, which report the end of a stream whose sender yields to another one. The receivers
//! follow the other sender, so the end is repeated until it is acknowledged.

use alloc::collections::{BTreeMap, VecDeque};

use super::super::context::Context;
use super::super::packet::Packet;
use crate::{NodeId, Time};

#[derive(Debug, Default)]
pub(crate) struct Farewells(VecDeque<Farewell>);

#[derive(Debug)]
struct Farewell {
    stream: u32,
    end: u64,
    epoch: u32,
    /// Number and next time of the transmissions to receivers that have not acknowledged the end.
    waiting: BTreeMap<NodeId, (u32, Time)>,
    acknowledged: Vec<NodeId>,
}

impl Farewells {
    /// Adds a farewell to the `members`, except for those in `complete`, which have all packets.
    pub(crate) fn push(
        &mut self,
        now: Time,
        (stream, end, epoch): (u32, u64, u32),
        members: impl Iterator<Item = NodeId>,
        complete: Vec<NodeId>,
    ) {
        if self.0.len() == MAX_STREAMS {
            self.0.pop_front();
        }
        let waiting =
            members.filter(|it| !complete.contains(it)).map(|it| (it, (0, now))).collect();
        self.0.push_back(Farewell { stream, end, epoch, waiting, acknowledged: complete });
    }

    pub(crate) fn on_joined(&mut self, now: Time, node: NodeId) {
        for farewell in self.0.iter_mut().filter(|it| !it.acknowledged.contains(&node)) {
            farewell.waiting.entry(node).or_insert((0, now));
        }
    }

    pub(crate) fn on_gone(&mut self, node: NodeId) {
        for farewell in &mut self.0 {
            farewell.waiting.remove(&node);
        }
    }

    pub(crate) fn on_acknowledged(&mut self, stream: u32, node: NodeId) {
        let its = self.0.iter_mut().filter(|it| it.stream == stream);
        for farewell in its {
            if farewell.waiting.remove(&node).is_some()
                && farewell.acknowledged.len() < MAX_ACKNOWLEDGED
            {
                farewell.acknowledged.push(node);
            }
        }
    }

    pub(crate) fn handle_timeout(&mut self, cx: &mut Context<'_>) {
        let (now, stream) = (cx.now, cx.stream);
        let every = cx.config.report_every;
        for farewell in &mut self.0 {
            cx.stream = farewell.stream;
            for (node, (count, due)) in farewell.waiting.iter_mut().filter(|it| it.1.1 <= now) {
                *due = now + every * (1 << (*count).min(MAX_DOUBLINGS));
                *count += 1;
                cx.counters.farewells_sent += 1;
                let (end, epoch) = (farewell.end, farewell.epoch);
                cx.unicast(*node, &Packet::Farewell { epoch, end });
            }
            farewell.waiting.retain(|_, (count, _)| *count < MAX_TRANSMISSIONS);
        }
        cx.stream = stream;
    }

    pub(crate) fn pending(&self) -> usize {
        self.0.iter().map(|farewell| farewell.waiting.len()).sum()
    }

    pub(crate) fn poll_timeout(&self) -> Time {
        let due = self.0.iter().flat_map(|it| it.waiting.values());
        due.map(|(_, at)| *at).min().unwrap_or(Time::MAX)
    }
}

const MAX_STREAMS: usize = 8;
const MAX_ACKNOWLEDGED: usize = 4096;
/// Maximum number of transmissions to one member, which last ten minutes with the default times.
const MAX_TRANSMISSIONS: u32 = 500;
/// Maximum number of doublings of the pause between transmissions, which reaches 1.3 s.
const MAX_DOUBLINGS: u32 = 6;

use core::time::Duration;

use super::receiver_record::ReceiverState;
use crate::{NodeId, Time};

#[derive(Debug, Default)]
pub(super) struct StallDetector(Option<(NodeId, Time)>);

impl StallDetector {
    /// Returns a receiver that has stalled the others for `slow_after`. `next` waits to be sent.
    pub(super) fn check<'a>(
        &mut self,
        now: Time,
        slow_after: Duration,
        next: Option<u64>,
        receivers: impl Iterator<Item = (NodeId, &'a ReceiverState)>,
    ) -> Option<NodeId> {
        let stalling = next.and_then(|next| stalling(next, receivers));
        self.0 = stalling.map(|node| match self.0 {
            Some((before, since)) if before == node => (node, since),
            _ => (node, now),
        });
        let (node, _) = self.0.take_if(|(_, since)| now.since(*since) >= slow_after)?;
        Some(node)
    }
}

/// Returns the receiver whose window ends at `next` while the others' windows are much larger.
fn stalling<'a>(
    next: u64,
    receivers: impl Iterator<Item = (NodeId, &'a ReceiverState)>,
) -> Option<NodeId> {
    let room = |state: &ReceiverState| state.limit.saturating_sub(state.next);
    let mut by_limit: Vec<(u64, NodeId, u64)> =
        receivers.map(|(node, state)| (state.limit, node, room(state))).collect();
    by_limit.sort_unstable();
    let [(limit, node, least), (_, _, second), ..] = by_limit[..] else { return None };
    let is_bound = limit <= next + REPORT_LAG;
    (is_bound && least * SLOW_PART <= second).then_some(node)
}

/// Maximum number of packets by which a receiver's report lags behind its current limit.
const REPORT_LAG: u64 = 64;
/// Ratio of the two smallest windows at which the smaller one stalls the other receivers.
const SLOW_PART: u64 = 4;

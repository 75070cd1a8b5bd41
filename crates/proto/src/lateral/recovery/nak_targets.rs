//! Targets, retry intervals and rate limits of NAKs.

use core::time::Duration;

use crate::lateral::config::{AskFirst, NakConfig};
use crate::lateral::groups::members::Members;
use crate::lateral::streams::loss_list::Missing;
use crate::{NodeId, Rng, Time};

/// Rate limit with a burst of a tenth of a second's worth: the generic cell rate algorithm, in
/// which the time up to which the allowance is used runs ahead of the clock.
#[derive(Debug)]
pub(crate) struct RateLimit {
    interval_ns: u64,
    used_up_to: Time,
}

impl RateLimit {
    /// Creates a limit of `per_second`. 0 allows nothing.
    pub(crate) fn new(per_second: u32) -> Self {
        let interval_ns = 1_000_000_000_u64.checked_div(u64::from(per_second)).unwrap_or(u64::MAX);
        Self { interval_ns, used_up_to: Time::ZERO }
    }

    /// Uses one unit of the allowance. Returns `false` if none is left.
    pub(crate) fn take(&mut self, now: Time) -> bool {
        let interval = Duration::from_nanos(self.interval_ns);
        let used_up_to = self.used_up_to.max(now) + interval;
        let allowed = used_up_to <= now + BURST.max(interval) && self.interval_ns != u64::MAX;
        if allowed {
            self.used_up_to = used_up_to;
        }
        allowed
    }

    /// Returns the time at which the next unit is available.
    pub(crate) fn next_at(&self, now: Time) -> Time {
        (self.used_up_to + Duration::from_nanos(self.interval_ns)).before(BURST).max(now)
    }
}

const BURST: Duration = Duration::from_millis(100);
/// From this attempt on, the sender is queried even if it is not in the view.
const LATER: usize = 3;

/// Returns the node to query at this attempt: first the nodes that [`AskFirst`] names, in its
/// order, then random members and the packet's sender in turn.
///
/// Only members are queried. A random member that joined after the packet was noticed missing
/// cannot have it, unless it had wrongly been taken for failed. It is chosen only if there is no
/// other.
///
/// The sender is also queried if it is not in the view: while the view is empty, and from the
/// fourth attempt on. In a partial view (Slingshot 3.3) its absence need not mean that it has left.
pub(crate) fn nak_target(
    first: AskFirst,
    missing: &Missing,
    origin: NodeId,
    members: &Members,
    rng: &mut Rng,
) -> NodeId {
    let is_member = |node: &NodeId| members.contains(*node);
    let sender = Some(origin).filter(is_member);
    let holders = missing.holders.iter().filter(is_member);
    let named: [Option<NodeId>; 4] = match first {
        AskFirst::RepairSender => gather(holders.chain(sender)),
        AskFirst::DataSender => gather(sender.into_iter().chain(holders)),
        AskFirst::AnyMember => [None; 4],
    };
    let attempt = usize::from(missing.attempts);
    if let Some(node) = named.get(attempt).copied().flatten() {
        return node;
    }
    let count = members.ids().len();
    if count == 0 {
        return origin;
    }
    let any = members.first_since(missing.noticed_at, rng.below(count));
    match attempt % 2 {
        0 => any,
        _ if attempt >= LATER => origin,
        _ => sender.unwrap_or(any),
    }
}

/// Returns the time to wait after this attempt before the next one.
pub(crate) fn patience(nak: &NakConfig, attempts: u8, rng: &mut Rng) -> Duration {
    let most = if attempts <= 8 { 2 } else { 4 };
    let doublings = u32::from(attempts.saturating_sub(1)).min(most);
    nak.retry * (1 << doublings) + jitter(nak, rng)
}

/// Returns a random part of the jitter.
pub(crate) fn jitter(nak: &NakConfig, rng: &mut Rng) -> Duration {
    nak.jitter.mul_f64(rng.fraction())
}

fn gather(nodes: impl Iterator<Item = NodeId>) -> [Option<NodeId>; 4] {
    let mut named = [None; 4];
    named.iter_mut().zip(nodes).for_each(|(place, node)| *place = Some(node));
    named
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SeqNo;
    use crate::lateral::streams::StreamIx;

    const MEMBERS: [NodeId; 4] = [NodeId(1), NodeId(2), NodeId(3), NodeId(4)];

    /// Returns all of [`MEMBERS`], the last of which joined late.
    fn members() -> Members {
        let mut members = Members::new(1);
        MEMBERS.iter().zip([1, 1, 1, 9]).for_each(|(node, at)| {
            members.insert(Time(at), *node);
        });
        members
    }

    const SENDER: NodeId = NodeId(2);

    fn missing(attempts: u8, noticed_at: u64, holders: &[u64]) -> Missing {
        let mut missing = Missing {
            stream: StreamIx(0),
            seqno: SeqNo(1),
            noticed_at: Time(noticed_at),
            attempts,
            holders: Default::default(),
        };
        holders.iter().for_each(|node| missing.holders.add(NodeId(*node)));
        missing
    }

    fn asked(first: AskFirst, attempts: u8) -> NodeId {
        let mut rng = Rng::new(1);
        nak_target(first, &missing(attempts, 5, &[4, 9, 3]), SENDER, &members(), &mut rng)
    }

    #[test]
    fn nak_targets_follow_the_configured_order_without_gone_nodes() {
        let order = |first| [0, 1, 2].map(|attempt| asked(first, attempt).0);
        assert_eq!(order(AskFirst::RepairSender), [4, 3, 2]);
        assert_eq!(order(AskFirst::DataSender), [2, 4, 3]);
        assert_eq!(asked(AskFirst::AnyMember, 1), SENDER);
    }

    #[test]
    fn later_attempts_alternate_between_sender_and_random_members() {
        let mut rng = Rng::new(1);
        for (noticed_at, asked) in [(9, &MEMBERS[..]), (5, &MEMBERS[..3])] {
            let mut others = std::collections::BTreeSet::new();
            for attempt in 3..43 {
                let (first, missing) = (AskFirst::RepairSender, missing(attempt, noticed_at, &[]));
                let node = nak_target(first, &missing, SENDER, &members(), &mut rng);
                if attempt % 2 == 1 {
                    assert_eq!(node, SENDER);
                } else {
                    others.insert(node);
                }
            }
            assert!(others.iter().eq(asked), "noticed at {noticed_at}: {others:?}");
        }
        let (first, nobody) = (AskFirst::AnyMember, Members::new(1));
        let mut of_a_stranger =
            |attempt| nak_target(first, &missing(attempt, 9, &[]), NodeId(7), &members(), &mut rng);
        assert!(MEMBERS.contains(&of_a_stranger(1)), "who is not in the view may have gone");
        assert_eq!(of_a_stranger(3), NodeId(7), "or the view does not show it");
        assert_eq!(nak_target(first, &missing(0, 5, &[]), SENDER, &nobody, &mut rng), SENDER);
    }

    #[test]
    fn rate_limit_admits_its_rate_in_bursts_of_a_tenth_second() {
        let mut limit = RateLimit::new(1000);
        let start = Time(1_000_000_000);
        let at_once = (0..500).filter(|_| limit.take(start)).count();
        assert_eq!(at_once, 100);
        assert_eq!(limit.next_at(start), start + Duration::from_millis(1));
        let over_a_second =
            (1..=1000).filter(|ms| limit.take(start + Duration::from_millis(*ms))).count();
        assert_eq!(over_a_second, 1000);
        assert!(!RateLimit::new(0).take(start));
    }
}

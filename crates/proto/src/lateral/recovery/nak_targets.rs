use crate::lateral::config::AskFirst;
use crate::lateral::groups::Members;
use crate::lateral::streams::Missing;
use crate::{NodeId, Rng};

const LATER: usize = 3;

/// Returns the node to query at this attempt. The first attempts query the nodes that [`AskFirst`]
/// selects, in its order. Later attempts alternate between random members and the packet's sender.
///
/// Only members and the sender are queried. A random member that joined after the packet was found
/// to be missing cannot have it, unless the member had wrongly been considered failed. Such a
/// member is chosen only if there is no other.
///
/// A sender that is not in the view is queried while the view is empty, and from the fourth attempt
/// on. In a partial view (Slingshot 3.3), its absence does not mean that it has left.
pub(super) fn nak_target(
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

fn gather(nodes: impl Iterator<Item = NodeId>) -> [Option<NodeId>; 4] {
    let mut named = [None; 4];
    named.iter_mut().zip(nodes).for_each(|(place, node)| *place = Some(node));
    named
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lateral::index::StreamIx;
    use crate::{SeqNo, Time};

    const MEMBERS: [NodeId; 4] = [NodeId(1), NodeId(2), NodeId(3), NodeId(4)];

    fn members() -> Members {
        let mut members = Members::new(1);
        MEMBERS.iter().zip([1, 1, 1, 9]).for_each(|(node, at)| {
            members.insert(Time(at), *node);
        });
        members
    }

    const SENDER: NodeId = NodeId(2);

    fn missing(attempts: u8, noticed_at: u64, holders: &[u64]) -> Missing {
        let missing = Missing::new(StreamIx(0), SeqNo(1), Time(noticed_at));
        let mut missing = Missing { attempts, ..missing };
        holders.iter().for_each(|node| missing.holders.add(NodeId(*node)));
        missing
    }

    fn asked(first: AskFirst, attempts: u8) -> NodeId {
        let mut rng = Rng::new(1);
        nak_target(first, &missing(attempts, 5, &[4, 9, 3]), SENDER, &members(), &mut rng)
    }

    #[test]
    fn first_targets_follow_the_configured_order() {
        let order = |first| [0, 1, 2].map(|attempt| asked(first, attempt).0);
        assert_eq!(order(AskFirst::RepairSender), [4, 3, 2]);
        assert_eq!(order(AskFirst::DataSender), [2, 4, 3]);
        assert_eq!(asked(AskFirst::AnyMember, 1), SENDER);
    }

    #[test]
    fn later_targets_are_the_sender_and_random_members() {
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
        assert!(MEMBERS.contains(&of_a_stranger(1)), "a sender may have left the view");
        assert_eq!(of_a_stranger(3), NodeId(7), "or it may be outside of a partial view");
        assert_eq!(nak_target(first, &missing(0, 5, &[]), SENDER, &nobody, &mut rng), SENDER);
    }
}

//! Derives domains from a multicast tree.

use std::collections::{BTreeMap, BTreeSet};

use carom_proto::rdcm::topology::Vertex;
use carom_proto::rdcm::tree::MulticastTree;
use carom_proto::{GroupId, NodeId};

use super::hierarchy::{Domain, Hierarchy, HierarchyError, Place, Scope};

/// The rule for dividing a multicast tree into domains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Minimum number of receivers in a subtree that form a domain. Values below 2 count as 2.
    pub least: usize,
    /// Maximum number of tiers of heads, including the sender, which is the head of the remaining
    /// receivers. LBRM has 2. `None` means no limit.
    pub tiers: Option<u32>,
    /// Group of the first domain's multicast. The other domains use the subsequent numbers.
    pub first_scope: GroupId,
}

#[derive(Clone, Copy)]
struct Open {
    receiver: Vertex,
    tiers: u32,
}

impl Hierarchy {
    /// Divides a multicast tree into domains, from the leaves upwards.
    ///
    /// Where enough receivers without a head meet, the one nearest to the sender becomes the head
    /// of the others. The sender is the head of the rest. Links are counted along the tree.
    ///
    /// # Errors
    /// Returns [`HierarchyError::TwoHeads`] or [`HierarchyError::Circle`] if `node` maps two
    /// vertices to the same node.
    pub fn from_tree(
        tree: &MulticastTree,
        plan: Plan,
        node: impl Fn(Vertex) -> NodeId,
    ) -> Result<Self, HierarchyError> {
        let mut domains = Vec::new();
        let mut open_at: BTreeMap<Vertex, Vec<Open>> = BTreeMap::new();
        for vertex in tree.upwards() {
            let below =
                tree.children(vertex).flat_map(|it| open_at.remove(&it).unwrap_or_default());
            let own = Some(vertex).filter(|it| tree.receivers().contains(it));
            let own = own.map(|receiver| Open { receiver, tiers: 0 });
            let mut open: Vec<Open> = below.chain(own).collect();
            let head = if vertex == tree.sender() {
                Some(vertex).filter(|_| !open.is_empty())
            } else {
                choose_head(tree, plan, &mut open, &mut open_at, vertex)
            };
            let Some(head) = head else { continue };
            let members: Vec<Vertex> = open.iter().map(|it| it.receiver).collect();
            let group = GroupId(plan.first_scope.0.wrapping_add(domains.len() as u32));
            let links = links_between(tree, head, &members).len() as u32;
            let place = |member: &Vertex| {
                let links = links_between(tree, head, &[*member]).len() as u32;
                Place { node: node(*member), links }
            };
            let members = members.iter().map(place).collect();
            let scope = Some(Scope { group, links });
            domains.push(Domain { head: node(head), scope, members });
        }
        Self::from_domains(domains)
    }
}

/// Chooses a head if enough receivers meet at `vertex`. Its domain consists of `open`.
fn choose_head(
    tree: &MulticastTree,
    plan: Plan,
    open: &mut Vec<Open>,
    open_at: &mut BTreeMap<Vertex, Vec<Open>>,
    vertex: Vertex,
) -> Option<Vertex> {
    let may_join = |it: &Open| plan.tiers.is_none_or(|tiers| it.tiers + 2 <= tiers);
    let (mut inside, mut left_over): (Vec<Open>, Vec<Open>) =
        core::mem::take(open).into_iter().partition(may_join);
    let nearest = |it: &(usize, &Open)| (tree.depth(it.1.receiver), it.1.receiver);
    let head = inside.iter().enumerate().min_by_key(nearest).map(|(place, _)| place);
    let Some(place) = head.filter(|_| inside.len() >= plan.least.max(2)) else {
        left_over.append(&mut inside);
        open_at.insert(vertex, left_over);
        return None;
    };
    let tiers = 1 + inside.iter().map(|it| it.tiers).max().unwrap_or(0);
    let head = inside.remove(place).receiver;
    left_over.push(Open { receiver: head, tiers });
    open_at.insert(vertex, left_over);
    *open = inside;
    Some(head)
}

/// Returns the links between `head` and `members`, each identified by its lower end.
fn links_between(tree: &MulticastTree, head: Vertex, members: &[Vertex]) -> BTreeSet<Vertex> {
    let way_up = |vertex: Vertex| {
        let lower_end = move |vertex: &Vertex| tree.above(*vertex).map(|above| above.vertex);
        core::iter::successors(Some(vertex), lower_end).filter(|it| tree.above(*it).is_some())
    };
    let of_head: BTreeSet<Vertex> = way_up(head).collect();
    let mut links = BTreeSet::new();
    for member in members {
        let of_member: BTreeSet<Vertex> = way_up(*member).collect();
        links.extend(of_head.symmetric_difference(&of_member));
    }
    links
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom_proto::rdcm::topology::Topology;

    const PLAN: Plan = Plan { least: 3, tiers: None, first_scope: GroupId(500) };

    fn node(vertex: Vertex) -> NodeId {
        NodeId(u64::from(vertex.0) + 1)
    }

    fn tree(topology: &Topology) -> MulticastTree {
        let receivers: BTreeSet<Vertex> = (1..topology.hosts()).map(Vertex).collect();
        let (tree, unreached) =
            MulticastTree::shortest(topology, &BTreeSet::new(), Vertex(0), &receivers);
        assert!(unreached.is_empty());
        tree
    }

    #[test]
    fn racks_are_domains_and_their_heads_are_below_the_sender() {
        let topology = Topology::racks(&[4, 4, 4]).expect("a valid topology");
        let hierarchy = Hierarchy::from_tree(&tree(&topology), PLAN, node)
            .expect("each vertex has its own node");
        // The sender's rack contains three other hosts. The heads of the other racks meet there.
        let heads = hierarchy.heads();
        assert_eq!(heads, [(NodeId(1), 1), (NodeId(2), 4), (NodeId(5), 3), (NodeId(9), 3)]);
        assert_eq!(hierarchy.links(NodeId(5), NodeId(6)), 2, "by the switch of their rack");
        assert_eq!(hierarchy.links(NodeId(2), NodeId(5)), 4, "by the core");
    }

    #[test]
    fn two_tiers_have_all_heads_right_below_the_sender() {
        let topology = Topology::bcube(4, 2).expect("a valid topology");
        let tree = tree(&topology);
        let two = Plan { tiers: Some(2), ..PLAN };
        let hierarchy =
            Hierarchy::from_tree(&tree, two, node).expect("each vertex has its own node");
        let heads = hierarchy.heads();
        let members: usize = heads.iter().map(|(_, members)| members).sum();
        assert_eq!(members, 63, "every receiver has one head");
        let of_sender =
            heads.iter().find(|(head, _)| *head == NodeId(1)).expect("the sender is a head").1;
        assert!(of_sender >= heads.len() - 1, "{of_sender} of {}", heads.len());
        let many = Hierarchy::from_tree(&tree, PLAN, node).expect("each vertex has its own node");
        let of_sender = many.heads()[0];
        assert!(of_sender.0 == NodeId(1) && of_sender.1 < 4, "{of_sender:?}");
    }

    #[test]
    fn a_scope_has_the_links_between_its_members_and_each_once() {
        let topology = Topology::racks(&[4, 4]).expect("a valid topology");
        let tree = tree(&topology);
        let (head, others) = (Vertex(4), [Vertex(5), Vertex(6), Vertex(7)]);
        assert_eq!(links_between(&tree, head, &others).len(), 4);
        assert_eq!(links_between(&tree, Vertex(0), &others).len(), 6);
    }
}

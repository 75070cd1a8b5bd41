//! The assignment of a group's members to heads.

use alloc::sync::Arc;
use std::collections::{BTreeMap, BTreeSet};

use carom_proto::{GroupId, NodeId, View};

/// The division of a group into domains.
///
/// The head of a domain repairs packets for its members. While a head is not in the view, its
/// members request packets from the next head above, or from the source.
///
/// All members of a group must use the same hierarchy. Cloning is cheap.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hierarchy(Shape);

#[derive(Clone, Debug, Default, PartialEq)]
enum Shape {
    #[default]
    Flat,
    ById(u32),
    Declared(Arc<Declared>),
}

#[derive(Debug, Default, PartialEq)]
struct Declared {
    domains: BTreeMap<NodeId, Vec<Bounds>>,
    above: BTreeMap<NodeId, NodeId>,
}

#[derive(Debug, PartialEq)]
struct Bounds {
    scope: Option<Scope>,
    members: BTreeMap<NodeId, u32>,
}

/// A domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    /// Node that repairs packets for the members. It may be a member and a head of other domains.
    pub head: NodeId,
    /// Multicast that only this domain receives. With `None`, packets are sent by unicast.
    pub scope: Option<Scope>,
    /// All members except the head.
    pub members: Vec<Place>,
}

/// A member of a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Id of the member.
    pub node: NodeId,
    /// Number of links that a unicast packet from the head crosses.
    pub links: u32,
}

/// The multicast of a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope {
    /// Group that the domain's hosts must also receive; see [`Hierarchy::scopes`].
    pub group: GroupId,
    /// Number of links that a multicast packet to the group crosses.
    pub links: u32,
}

/// The reason why domains are invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HierarchyError {
    /// The node is a member of two domains, or of one domain twice.
    #[error("{0} is declared twice as a member: a node can be a member of only one domain")]
    TwoHeads(NodeId),
    /// The node is above itself, directly or through other heads.
    #[error("{0} is its own ancestor: heads must form a tree")]
    Circle(NodeId),
    /// The number of domains is zero.
    #[error("at least one domain is required")]
    None,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Living<'a> {
    pub(crate) me: NodeId,
    pub(crate) view: &'a View,
}

/// Number of links to another host if none is declared, as if all hosts were on one switch.
const LINKS_BY_A_SWITCH: u32 = 2;

impl Living<'_> {
    fn contains(self, node: NodeId) -> bool {
        node == self.me || self.view.contains(node)
    }

    fn nodes(self) -> impl Iterator<Item = NodeId> {
        self.view.members().iter().copied().chain([self.me])
    }
}

impl Hierarchy {
    /// Creates a single domain, in which members request packets from their source.
    pub fn flat() -> Self {
        Self(Shape::Flat)
    }

    /// Divides nodes with unknown positions into `domains` domains, by the remainders of their ids.
    /// The head of a domain is the member of the view with the lowest id. The domains have no
    /// multicast of their own.
    ///
    /// # Errors
    /// Returns [`HierarchyError::None`] if `domains` is 0.
    pub fn by_id(domains: u32) -> Result<Self, HierarchyError> {
        if domains == 0 {
            return Err(HierarchyError::None);
        }
        Ok(Self(Shape::ById(domains)))
    }

    /// Creates a hierarchy of declared domains. Nodes outside of them request packets from the
    /// source.
    ///
    /// # Errors
    /// Returns [`HierarchyError::TwoHeads`] or [`HierarchyError::Circle`] if the domains contradict
    /// each other.
    pub fn from_domains(domains: Vec<Domain>) -> Result<Self, HierarchyError> {
        let mut declared = Declared::default();
        for Domain { head, scope, members } in domains {
            for Place { node, .. } in &members {
                if declared.above.insert(*node, head).is_some() {
                    return Err(HierarchyError::TwoHeads(*node));
                }
            }
            let members = members.into_iter().map(|place| (place.node, place.links)).collect();
            declared.domains.entry(head).or_default().push(Bounds { scope, members });
        }
        for node in declared.above.keys() {
            // Only a cycle has as many steps up as there are nodes.
            if declared.heads(*node).take(declared.above.len() + 1).any(|head| head == *node) {
                return Err(HierarchyError::Circle(*node));
            }
        }
        Ok(Self(Shape::Declared(Arc::new(declared))))
    }

    /// Returns the groups that the host of `node` must receive in addition to its own groups.
    pub fn scopes(&self, node: NodeId) -> Vec<GroupId> {
        let Shape::Declared(declared) = &self.0 else { return Vec::new() };
        let above = declared.above.get(&node).into_iter().flat_map(|head| declared.of(*head));
        let above = above.filter(|domain| domain.members.contains_key(&node));
        let domains = above.chain(declared.of(node));
        domains.filter_map(|domain| domain.scope).map(|scope| scope.group).collect()
    }

    /// Returns the declared heads, each with its number of members.
    pub fn heads(&self) -> Vec<(NodeId, usize)> {
        let Shape::Declared(declared) = &self.0 else { return Vec::new() };
        let members = |domains: &[Bounds]| domains.iter().map(|it| it.members.len()).sum();
        declared.domains.iter().map(|(head, domains)| (*head, members(domains))).collect()
    }

    /// Returns the node from which this node requests packets of `source`. It is `climbs` steps up
    /// from the nearest node above that is in the view, or the topmost one.
    pub(crate) fn parent(&self, living: Living<'_>, source: NodeId, climbs: u32) -> Option<NodeId> {
        let mut last = None;
        for (step, node) in self.chain(living, source).enumerate() {
            last = Some(node);
            if step >= climbs as usize || node == source {
                break;
            }
        }
        last
    }

    /// Returns the nodes above this one that are in the view, from the nearest one to the source.
    fn chain(&self, living: Living<'_>, source: NodeId) -> impl Iterator<Item = NodeId> {
        let heads: Vec<NodeId> = match &self.0 {
            Shape::Flat => Vec::new(),
            Shape::ById(domains) => {
                let head = first_of(living, *domains, living.me.0 % u64::from(*domains));
                head.filter(|head| *head != living.me).into_iter().collect()
            }
            Shape::Declared(declared) => {
                declared.heads(living.me).filter(|head| living.contains(*head)).collect()
            }
        };
        let source = Some(source).filter(|source| living.view.contains(*source));
        heads.into_iter().chain(source)
    }

    /// Returns the nodes that request packets of `source` from this node, according to its view.
    pub(crate) fn children(&self, living: Living<'_>, source: NodeId) -> BTreeSet<NodeId> {
        let others = living.view.members().iter().copied().filter(|node| *node != source);
        let is_source = living.me == source;
        match &self.0 {
            Shape::Flat if is_source => others.collect(),
            Shape::Flat => BTreeSet::new(),
            Shape::ById(domains) => {
                let domain = |node: NodeId| node.0 % u64::from(*domains);
                let mut heads: BTreeMap<u64, NodeId> = BTreeMap::new();
                for node in living.nodes() {
                    let head = heads.entry(domain(node)).or_insert(node);
                    *head = node.min(*head);
                }
                let above = |node: NodeId| heads.get(&domain(node)).filter(|head| **head != node);
                let is_mine = |node: &NodeId| above(*node).map_or(is_source, |it| *it == living.me);
                others.filter(is_mine).collect()
            }
            Shape::Declared(declared) => {
                let above = |node: NodeId| declared.heads(node).find(|head| living.contains(*head));
                let is_mine = |node: &NodeId| above(*node).map_or(is_source, |it| it == living.me);
                others.filter(is_mine).collect()
            }
        }
    }

    /// Groups nodes by the domains of `head` in a group of `size` members. Each domain is returned
    /// with its multicast, if it has one.
    pub(crate) fn by_domain(
        &self,
        group: GroupId,
        head: NodeId,
        mut nodes: BTreeSet<NodeId>,
        size: usize,
    ) -> Vec<(Option<Scope>, BTreeSet<NodeId>)> {
        let mut parts = Vec::new();
        match &self.0 {
            Shape::Flat => parts.push((Some(Scope { group, links: size as u32 + 1 }), nodes)),
            Shape::ById(_) => parts.push((None, nodes)),
            Shape::Declared(declared) => {
                for domain in declared.of(head) {
                    let is_inside = |node: &NodeId| domain.members.contains_key(node);
                    let (inside, outside) = nodes.into_iter().partition(is_inside);
                    nodes = outside;
                    parts.push((domain.scope, inside));
                }
                parts.push((None, nodes));
            }
        }
        parts.retain(|(_, nodes)| !nodes.is_empty());
        parts
    }

    pub(crate) fn hears(&self, group: GroupId, head: NodeId, scope: GroupId, node: NodeId) -> bool {
        let Shape::Declared(declared) = &self.0 else { return scope == group };
        let is_scope = |domain: &Bounds| domain.scope.is_some_and(|it| it.group == scope);
        let mut domains = declared.of(head).iter().filter(|domain| is_scope(domain));
        domains.any(|domain| domain.members.contains_key(&node))
    }

    pub(crate) fn links(&self, head: NodeId, node: NodeId) -> u32 {
        let domains = match &self.0 {
            Shape::Declared(declared) => declared.of(head),
            Shape::Flat | Shape::ById(_) => &[],
        };
        let links = domains.iter().find_map(|domain| domain.members.get(&node));
        links.copied().unwrap_or(LINKS_BY_A_SWITCH)
    }
}

impl Declared {
    fn of(&self, head: NodeId) -> &[Bounds] {
        self.domains.get(&head).map_or(&[], Vec::as_slice)
    }

    fn heads(&self, node: NodeId) -> impl Iterator<Item = NodeId> {
        let above = |node: &NodeId| self.above.get(node).copied();
        core::iter::successors(above(&node), above)
    }
}

fn first_of(living: Living<'_>, domains: u32, domain: u64) -> Option<NodeId> {
    living.nodes().filter(|node| node.0 % u64::from(domains) == domain).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom_proto::{ViewChange, ViewChangeKind};

    const GROUP: GroupId = GroupId(1);

    fn view(nodes: &[u64]) -> View {
        let mut view = View::default();
        for node in nodes {
            let (node, kind) = (NodeId(*node), ViewChangeKind::Joined);
            view.apply(&ViewChange { group: GROUP, node, kind, version: 1 });
        }
        view
    }

    fn domain(head: u64, members: &[u64]) -> Domain {
        let place = |node: &u64| Place { node: NodeId(*node), links: 2 };
        let scope = Some(Scope { group: GroupId(100 + head as u32), links: 5 });
        Domain { head: NodeId(head), scope, members: members.iter().map(place).collect() }
    }

    fn set(nodes: &[u64]) -> BTreeSet<NodeId> {
        nodes.iter().copied().map(NodeId).collect()
    }

    fn declared() -> Hierarchy {
        let domains = vec![domain(1, &[2, 3]), domain(2, &[4, 5]), domain(3, &[6, 7])];
        Hierarchy::from_domains(domains).expect("valid domains")
    }

    fn parent(hierarchy: &Hierarchy, me: u64, view: &View, source: u64, climbs: u32) -> u64 {
        let living = Living { me: NodeId(me), view };
        hierarchy.parent(living, NodeId(source), climbs).map_or(0, |node| node.0)
    }

    #[test]
    fn member_requests_from_its_head_then_above_then_the_source() {
        let (hierarchy, all) = (declared(), view(&[1, 2, 3, 5, 6, 7, 8]));
        let asked = |source, climbs| parent(&hierarchy, 4, &all, source, climbs);
        assert_eq!([asked(1, 0), asked(1, 1), asked(1, 2), asked(1, 9)], [2, 1, 1, 1]);
        assert_eq!([asked(7, 0), asked(7, 1), asked(7, 2), asked(7, 3)], [2, 1, 7, 7]);
        assert_eq!([asked(2, 0), asked(2, 1)], [2, 2], "the source has no parent");
        assert_eq!(parent(&hierarchy, 4, &view(&[1, 3]), 1, 0), 1, "its head is not in the view");
        assert_eq!(parent(&hierarchy, 4, &view(&[5]), 1, 0), 0, "no head is in the view");
        assert_eq!(parent(&Hierarchy::flat(), 4, &all, 3, 2), 3);
    }

    #[test]
    fn every_node_but_the_source_has_exactly_one_parent() {
        let by_id = Hierarchy::by_id(3).expect("at least one domain");
        for hierarchy in [Hierarchy::flat(), by_id, declared()] {
            for gone in 0..=8_u64 {
                let nodes: Vec<u64> = (1..=9).filter(|node| *node != gone).collect();
                for source in &nodes {
                    let mut children = Vec::new();
                    for me in &nodes {
                        let others: Vec<u64> =
                            nodes.iter().copied().filter(|other| other != me).collect();
                        let view = view(&others);
                        let living = Living { me: NodeId(*me), view: &view };
                        for child in hierarchy.children(living, NodeId(*source)) {
                            children.push(child.0);
                            let others: Vec<u64> =
                                nodes.iter().copied().filter(|it| *it != child.0).collect();
                            let above =
                                parent(&hierarchy, child.0, &self::view(&others), *source, 0);
                            assert_eq!(above, *me, "{child} of {source} in {hierarchy:?}");
                        }
                    }
                    children.sort_unstable();
                    let expected: Vec<u64> =
                        nodes.iter().copied().filter(|node| node != source).collect();
                    assert_eq!(children, expected, "{hierarchy:?} of {source}");
                }
            }
        }
    }

    #[test]
    fn a_scope_is_for_those_inside_the_domain_alone() {
        let mut domains = vec![domain(2, &[4, 5]), domain(2, &[3]), domain(1, &[2, 9])];
        domains[1].scope = None;
        let hierarchy = Hierarchy::from_domains(domains).expect("valid domains");
        let parts = |hierarchy: &Hierarchy, head, nodes: &[u64]| {
            let parts = hierarchy.by_domain(GROUP, NodeId(head), set(nodes), 9);
            let part = |(scope, nodes): (Option<Scope>, BTreeSet<NodeId>)| {
                (scope.map(|it| (it.group.0, it.links)), nodes.len())
            };
            parts.into_iter().map(part).collect::<Vec<_>>()
        };
        let two = parts(&hierarchy, 2, &[3, 4, 5, 6]);
        assert_eq!(two, [(Some((102, 5)), 2), (None, 1), (None, 1)]);
        assert_eq!(parts(&hierarchy, 2, &[3, 6]), [(None, 1), (None, 1)]);
        assert_eq!(hierarchy.scopes(NodeId(2)), [GroupId(101), GroupId(102)]);
        assert_eq!(hierarchy.scopes(NodeId(4)), [GroupId(102)]);
        assert_eq!(hierarchy.scopes(NodeId(3)), []);
        let hears = |node| hierarchy.hears(GROUP, NodeId(2), GroupId(102), NodeId(node));
        assert_eq!([hears(4), hears(3), hears(9)], [true, false, false]);
        assert_eq!(parts(&Hierarchy::flat(), 1, &[2, 3]), [(Some((1, 10)), 2)]);
    }

    #[test]
    fn domains_that_contradict_each_other_are_refused() {
        let refused = |domains| Hierarchy::from_domains(domains).expect_err("they contradict");
        let twice = vec![domain(1, &[3]), domain(2, &[3])];
        assert_eq!(refused(twice), HierarchyError::TwoHeads(NodeId(3)));
        let circle = vec![domain(1, &[2]), domain(2, &[3]), domain(3, &[1])];
        assert_eq!(refused(circle), HierarchyError::Circle(NodeId(1)));
        assert_eq!(Hierarchy::by_id(0), Err(HierarchyError::None));
    }
}

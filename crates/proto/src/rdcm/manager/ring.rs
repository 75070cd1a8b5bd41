//! Overlay rings, and the order of their members, which the paper leaves open.
//!
//! If a whole branch has lost a packet, its proxy gets the first repair. The repair then travels up
//! the leaf rings and down again, from receiver to receiver around each ring. A ring begins with
//! the receiver that gets the repair from outside the ring. The receivers that lead to higher rings
//! follow, and then the proxies of branches, the largest branch first because it takes longest.
//! Receivers that do not forward the repair are last. In a BCube(8,3) with 1000 receivers, the path
//! from a proxy to the receivers below it is a fifth shorter than in the order of branches. For the
//! largest branches, it is a third shorter.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use super::super::topology::Vertex;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OverlayRing {
    /// Number of branching vertices from this one to the farthest receiver, including this one.
    pub(super) level: u32,
    pub(super) parent: Vertex,
    /// Members in ring order. Each member repairs for the next one, and the last one for the first.
    pub(super) members: Vec<RingMember>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RingMember {
    /// Child of the ring's vertex above the receiver, or the receiver itself if it forwards.
    pub(super) branch: Vertex,
    pub(super) proxy: Vertex,
    pub(super) is_leaf: bool,
}

type Rings = BTreeMap<Vertex, OverlayRing>;

impl OverlayRing {
    pub(super) fn proxy_of(&self, branch: Vertex) -> Option<Vertex> {
        let member = self.members.iter().find(|member| member.branch == branch);
        member.map(|member| member.proxy)
    }

    fn successor_of(&self, proxy: Vertex) -> Option<Vertex> {
        let place = self.members.iter().position(|member| member.proxy == proxy)?;
        Some(self.members[(place + 1) % self.members.len()].proxy)
    }
}

/// Orders the members of all rings. A ring with the same members as in `previous` keeps its order.
pub(super) fn arrange(
    rings: &mut Rings,
    receivers: &BTreeMap<Vertex, usize>,
    previous: Option<&Rings>,
) {
    let mut order = Order::new(rings, receivers);
    for (vertex, ring) in rings.iter_mut() {
        let before = previous.and_then(|rings| rings.get(vertex));
        if let Some(before) = before.filter(|before| is_permuted(&before.members, &ring.members)) {
            ring.members.clone_from(&before.members);
            order.arranged.insert(*vertex);
        }
    }
    let highest = rings.iter().max_by_key(|(_, ring)| ring.level).map(|(vertex, _)| *vertex);
    let Some(highest) = highest else { return };
    // Repairs can enter the highest ring anywhere. Losses of a branch are repaired below it.
    order.arrange(rings, highest, None);
    let entries: Vec<Vertex> = rings[&highest].members.iter().map(|it| it.proxy).collect();
    for entry in entries {
        order.spread(rings, highest, entry);
    }
}

struct Order<'a> {
    /// Number of receivers below each branch and below the tree parent of each ring.
    receivers: &'a BTreeMap<Vertex, usize>,
    sizes: BTreeMap<Vertex, usize>,
    proxy_rings: BTreeMap<Vertex, Vertex>,
    rings_of: BTreeMap<Vertex, Vec<Vertex>>,
    arranged: BTreeSet<Vertex>,
}

impl<'a> Order<'a> {
    fn new(rings: &Rings, receivers: &'a BTreeMap<Vertex, usize>) -> Self {
        let mut order = Self {
            receivers,
            sizes: BTreeMap::new(),
            proxy_rings: BTreeMap::new(),
            rings_of: BTreeMap::new(),
            arranged: BTreeSet::new(),
        };
        for (vertex, ring) in rings {
            let sizes = ring.members.iter().map(|member| order.below(member));
            order.sizes.insert(*vertex, sizes.sum());
            for member in &ring.members {
                order.rings_of.entry(member.proxy).or_default().push(*vertex);
                if !member.is_leaf {
                    order.proxy_rings.insert(member.proxy, *vertex);
                }
            }
        }
        order
    }

    fn below(&self, member: &RingMember) -> usize {
        if member.is_leaf { 1 } else { self.receivers[&member.branch] }
    }

    fn arrange(&mut self, rings: &mut Rings, vertex: Vertex, entry: Option<Vertex>) {
        if !self.arranged.insert(vertex) {
            return;
        }
        let members = &mut rings.get_mut(&vertex).expect("the vertex has a ring").members;
        members.sort_by_key(|member| {
            let leads_up = self.proxy_rings.get(&member.proxy).filter(|_| member.is_leaf);
            let (class, receivers) = match leads_up {
                Some(ring) => (0, self.sizes[ring]),
                None => (1, self.below(member)),
            };
            (Some(member.proxy) != entry, class, Reverse(receivers))
        });
    }

    fn spread(&mut self, rings: &mut Rings, highest: Vertex, entry: Vertex) {
        let mut reached = BTreeSet::from([entry]);
        let mut open = BinaryHeap::from([Reverse((0_u32, entry))]);
        while let Some(Reverse((hops, receiver))) = open.pop() {
            for vertex in self.rings_of[&receiver].clone() {
                if vertex == highest {
                    continue;
                }
                self.arrange(rings, vertex, Some(receiver));
                let next = rings[&vertex].successor_of(receiver).expect("it is a member");
                if reached.insert(next) {
                    open.push(Reverse((hops + 1, next)));
                }
            }
        }
    }
}

fn is_permuted(some: &[RingMember], others: &[RingMember]) -> bool {
    some.len() == others.len() && some.iter().all(|member| others.contains(member))
}

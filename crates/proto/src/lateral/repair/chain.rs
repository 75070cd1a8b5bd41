//! Algorithm 1 for one region (Ricochet 3.1.2): the bins that serve the region, and the number of
//! its nodes that each bin selects.
//!
//! Each packet of a group A must reach c_A of the |A| other members. The *share* of A, `c_A / |A|`,
//! is the same in all its regions. In a region of |R| nodes, the packet must reach `|R|` times the
//! share. A [`Chain`] keeps the groups of a region in classes of equal share. A group whose share
//! changes moves from one class to another, and all other links of the chain remain unchanged.

use core::ops::{BitXor, BitXorAssign, Range};

use crate::Rng;

/// A set of groups, represented by the XOR of a random 128-bit number for each of them (Zobrist
/// hashing). Adding or removing a group takes constant time.
///
/// A node draws these numbers from its seed and keeps them secret, so that collisions cannot be
/// provoked by choosing groups. Two sets collide by chance with a probability of 2^-128. Two
/// regions would then wrongly share bins, and repairs would be less useful to one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct SetId(u128);

/// One link of a region's chain: a bin, and the number of targets that the bin selects per repair.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Link {
    /// Lowest share of the bin's groups, which are all groups of the region with at least this
    /// share.
    pub(crate) share: f64,
    pub(crate) set: SetId,
    pub(crate) targets: f64,
}

/// Inclusive range of shares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Span {
    least: f64,
    most: f64,
}

#[derive(Debug, Default)]
pub(crate) struct Chain {
    classes: Vec<Class>,
    all: SetId,
}

#[derive(Debug)]
struct Class {
    share: f64,
    groups: usize,
    set: SetId,
}

impl SetId {
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        Self(u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64()))
    }
}

impl Span {
    pub(crate) const ALL: Self = Self::up_to(1.0);

    pub(crate) const fn up_to(share: f64) -> Self {
        Self { least: 0.0, most: share }
    }

    pub(crate) fn between(one: f64, other: f64) -> Self {
        Self { least: one.min(other), most: one.max(other) }
    }

    pub(crate) fn with(self, other: Self) -> Self {
        Self { least: self.least.min(other.least), most: self.most.max(other.most) }
    }

    /// Returns the indices of the elements of `all` that a change in the span can affect. These are
    /// the elements in the span and the next one, which depends on them. `all` must be sorted by
    /// share.
    pub(crate) fn places<T>(self, all: &[T], share: impl Fn(&T) -> f64) -> Range<usize> {
        let first = all.partition_point(|one| share(one) < self.least);
        let behind = all[first..].partition_point(|one| share(one) <= self.most);
        first..all.len().min(first + behind + 1)
    }
}

impl BitXor for SetId {
    type Output = Self;

    fn bitxor(self, other: Self) -> Self {
        Self(self.0 ^ other.0)
    }
}

impl BitXorAssign for SetId {
    fn bitxor_assign(&mut self, other: Self) {
        self.0 ^= other.0;
    }
}

impl Chain {
    pub(crate) fn insert(&mut self, share: f64, group: SetId) {
        self.all ^= group;
        match self.place(share) {
            Ok(place) => {
                self.classes[place].groups += 1;
                self.classes[place].set ^= group;
            }
            Err(place) => self.classes.insert(place, Class { share, groups: 1, set: group }),
        }
    }

    pub(crate) fn remove(&mut self, share: f64, group: SetId) {
        self.all ^= group;
        let Ok(place) = self.place(share) else { return };
        let class = &mut self.classes[place];
        class.groups -= 1;
        class.set ^= group;
        if class.groups == 0 {
            self.classes.remove(place);
        }
    }

    /// Returns the links for a region of `nodes` nodes that a change in the `span` can affect.
    ///
    /// The bin of the first link contains packets of all groups of the region, and selects the
    /// lowest of their shares. The next link omits the groups with that share, and selects the
    /// difference to the lowest of the remaining shares. This continues until no group is left.
    /// Every packet of a group thus enters the bins of all links before its group is omitted, and
    /// these bins together select the share of the group. Groups with a share of 0 are in no bin.
    pub(crate) fn links(&self, nodes: usize, span: Span) -> impl Iterator<Item = Link> {
        let places = span.places(&self.classes, |class| class.share);
        let before = &self.classes[..places.start];
        let mut set = before.iter().fold(self.all, |set, class| set ^ class.set);
        let mut given = before.last().map_or(0.0, |class| class.share);
        self.classes[places].iter().filter_map(move |class| {
            let targets = (class.share - given) * nodes as f64;
            let link = Link { share: class.share, set, targets };
            set ^= class.set;
            given = class.share;
            (targets > 0.0).then_some(link)
        })
    }

    fn place(&self, share: f64) -> Result<usize, usize> {
        // Equal fractions are equal numbers. A quotient is rounded correctly, and two different
        // fractions of numbers below 2^26 differ by more than the rounding error.
        self.classes.binary_search_by(|class| class.share.total_cmp(&share))
    }
}

#[cfg(test)]
#[path = "chain_tests.rs"]
pub(crate) mod tests;

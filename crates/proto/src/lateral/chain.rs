//! Algorithm 1 for one region (Ricochet 3.1.2): which bins serve it, and how many of its nodes each
//! of them selects.
//!
//! A group A asks that each of its packets goes to c_A of its |A| other members. Its *share*,
//! `c_A / |A|`, is the same in all its regions, and a region of |R| nodes gets `|R|` times that. A
//! [`Chain`] keeps the region's groups in classes of equal share, so that a group whose share
//! changes moves from one class to another, and all other links of the chain stay as they are.

use core::ops::{BitXor, BitXorAssign, Range};

use crate::Rng;

/// A set of groups: the XOR of a random number of 128 bits for each of them (Zobrist hashing), so
/// that a group comes in or goes out in one step. A node draws these numbers from its seed and
/// tells them to nobody, so that nobody can choose groups whose sets are taken for each other; that
/// it happens by chance has a probability of 2^-128 for two sets. Where it does, two regions share
/// bins that they should not share, and repairs are of less use to one of them: nothing else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct SetId(u128);

/// One link of a region's chain: the bin of these groups selects this many targets per repair.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Link {
    /// The least of the shares of its groups. Those of the region's groups that have as much or
    /// more are in the bin.
    pub(super) share: f64,
    /// The bin's group set.
    pub(super) set: SetId,
    /// Targets that it selects from the region for every repair, on average.
    pub(super) targets: f64,
}

/// The shares from one to another, both of them included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Span {
    least: f64,
    most: f64,
}

/// The groups of a region by share, the least first.
#[derive(Debug, Default)]
pub(super) struct Chain {
    classes: Vec<Class>,
    /// All groups of the region.
    all: SetId,
}

/// The groups of a region that have the same share, at least one.
#[derive(Debug)]
struct Class {
    share: f64,
    groups: usize,
    set: SetId,
}

impl SetId {
    /// The set of one group that was in none before.
    pub(super) fn draw(rng: &mut Rng) -> Self {
        Self(u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64()))
    }
}

impl Span {
    /// All shares that there are.
    pub(super) const ALL: Self = Self::up_to(1.0);

    pub(super) const fn up_to(share: f64) -> Self {
        Self { least: 0.0, most: share }
    }

    pub(super) fn between(one: f64, other: f64) -> Self {
        Self { least: one.min(other), most: one.max(other) }
    }

    /// The least span that both are in.
    pub(super) fn with(self, other: Self) -> Self {
        Self { least: self.least.min(other.least), most: self.most.max(other.most) }
    }

    /// Where those are, among `all` in the order of their shares, that may be different if classes
    /// in the span are: those in the span and the next one, which selects what these leave it.
    pub(super) fn places<T>(self, all: &[T], share: impl Fn(&T) -> f64) -> Range<usize> {
        let first = all.partition_point(|one| share(one) < self.least);
        let behind = all[first..].partition_point(|one| share(one) <= self.most);
        first..all.len().min(first + behind + 1)
    }
}

/// The groups that are in one of two sets but not in both.
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
    /// The set of one group, of this share, comes in.
    pub(super) fn insert(&mut self, share: f64, group: SetId) {
        self.all ^= group;
        match self.place(share) {
            Ok(place) => {
                self.classes[place].groups += 1;
                self.classes[place].set ^= group;
            }
            Err(place) => self.classes.insert(place, Class { share, groups: 1, set: group }),
        }
    }

    /// The set of one group, which came in with this share, goes out.
    pub(super) fn remove(&mut self, share: f64, group: SetId) {
        self.all ^= group;
        let Ok(place) = self.place(share) else { return };
        let class = &mut self.classes[place];
        class.groups -= 1;
        class.set ^= group;
        if class.groups == 0 {
            self.classes.remove(place);
        }
    }

    /// The links for a region of `nodes` nodes: those that a change in the `span` can change.
    ///
    /// The first link's bin holds packets of all the region's groups and selects the least of
    /// their shares; the next one leaves out the groups that have got enough by that, and selects
    /// what the least of the others still lacks; and so on. So every packet of a group is in the
    /// bins of the links up to the one after which it is left out, and those select the group's
    /// share together. Groups that want no targets are in no bin.
    pub(super) fn links(&self, nodes: usize, span: Span) -> impl Iterator<Item = Link> {
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
        // Equal fractions are equal numbers: a quotient is rounded correctly, and two fractions of
        // numbers below 2^26 that differ do so by more than the rounding.
        self.classes.binary_search_by(|class| class.share.total_cmp(&share))
    }
}

#[cfg(test)]
#[path = "chain_tests.rs"]
pub(super) mod tests;

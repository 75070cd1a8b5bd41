//! What is measured: who joins what.

use std::collections::BTreeSet;
use std::fmt;

use carom_proto::{NodeId, Rng};

/// A setting; the same for all processes that take part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) provider: Provider,
    pub(crate) nodes: usize,
    /// Groups of each node.
    pub(crate) groups: usize,
    /// Out of how many they are drawn.
    pub(crate) of: usize,
}

/// Who tells the nodes of each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Provider {
    Service,
    Gossip,
}

impl Plan {
    pub(crate) fn parse(arguments: &[&str]) -> Self {
        let (provider, numbers) = match arguments {
            ["service", numbers @ ..] => (Provider::Service, numbers),
            ["gossip", numbers @ ..] => (Provider::Gossip, numbers),
            numbers => (Provider::Service, numbers),
        };
        let numbers: Vec<usize> =
            numbers.iter().map(|it| it.parse().expect("a number of nodes or groups")).collect();
        let (nodes, groups) = match numbers[..] {
            [] => (64, 1000),
            [nodes] => (nodes, 1000),
            [nodes, groups, ..] => (nodes, groups),
        };
        let of = numbers.get(2).copied().unwrap_or(groups);
        assert!(groups <= of, "{groups} groups out of {of}");
        Self { provider, nodes, groups, of }
    }

    /// What [`Plan::parse`] makes this plan of.
    pub(crate) fn arguments(&self) -> [String; 4] {
        let Self { provider, nodes, groups, of } = self;
        [provider.to_string(), nodes.to_string(), groups.to_string(), of.to_string()]
    }

    /// The groups of a node, by number.
    pub(crate) fn groups_of(&self, node: usize) -> BTreeSet<usize> {
        let mut all: Vec<usize> = (0..self.of).collect();
        Rng::new(node as u64 + 1).choose_to_front(&mut all, self.groups);
        all.into_iter().take(self.groups).collect()
    }

    /// The other members of each group, in order of their ids, for one who sees all of them.
    pub(crate) fn members(&self) -> Vec<Vec<usize>> {
        let mut members = vec![Vec::new(); self.of];
        for node in 0..self.nodes {
            self.groups_of(node).into_iter().for_each(|group| members[group].push(node));
        }
        members
    }

    /// How many members a node sees, in all its groups together.
    pub(crate) fn views_of(&self, node: usize) -> usize {
        let members = self.members();
        self.groups_of(node).into_iter().map(|group| members[group].len() - 1).sum()
    }
}

/// Node ids go with the numbers, so that everybody knows who has to be in which view.
pub(crate) fn node_id(number: usize) -> NodeId {
    NodeId(number as u64 + 1)
}

pub(crate) fn group_name(number: usize) -> String {
    format!("group {number}")
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Service => "service",
            Self::Gossip => "gossip",
        })
    }
}

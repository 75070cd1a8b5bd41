//! Parameters of the benchmark, and the groups of each node.

use std::collections::BTreeSet;
use std::fmt;

use carom_proto::{NodeId, Rng};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) provider: Provider,
    pub(crate) nodes: usize,
    pub(crate) groups: usize,
    /// Number of groups from which a node's groups are drawn.
    pub(crate) of: usize,
}

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

    /// Returns the arguments from which [`Plan::parse`] recreates this plan.
    pub(crate) fn arguments(&self) -> [String; 4] {
        let Self { provider, nodes, groups, of } = self;
        [provider.to_string(), nodes.to_string(), groups.to_string(), of.to_string()]
    }

    pub(crate) fn groups_of(&self, node: usize) -> BTreeSet<usize> {
        let mut all: Vec<usize> = (0..self.of).collect();
        Rng::new(node as u64 + 1).choose_to_front(&mut all, self.groups);
        all.into_iter().take(self.groups).collect()
    }

    pub(crate) fn members(&self) -> Vec<Vec<usize>> {
        let mut members = vec![Vec::new(); self.of];
        for node in 0..self.nodes {
            self.groups_of(node).into_iter().for_each(|group| members[group].push(node));
        }
        members
    }

    /// Returns the number of other members that a node sees, summed over its groups.
    pub(crate) fn views_of(&self, node: usize) -> usize {
        let members = self.members();
        self.groups_of(node).into_iter().map(|group| members[group].len() - 1).sum()
    }
}

/// Derives the id of a node, so that every process can compute the expected views.
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

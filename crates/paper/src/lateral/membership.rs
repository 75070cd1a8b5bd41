use std::fmt;

use carom_proto::{GroupId, NodeId, RateOfFire, Rng};

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Membership {
    /// One group of random hosts. Every second host uses `odd`, for a fractional mean c.
    OneGroup { size: u32, rate: RateOfFire, odd: RateOfFire },
    /// Groups A and B. `both` hosts are in both groups, and the remaining hosts are divided evenly.
    TwoGroups { both: u32, a: RateOfFire, b: RateOfFire },
    /// Each host joins `groups_per_node` distinct groups at random. The number of groups follows
    /// from their mean size (Ricochet 4.2: d n = g s).
    Random { groups_per_node: u32, mean_size: u32, rate: RateOfFire },
}

#[derive(Clone, Debug)]
pub(crate) struct Groups {
    members: Vec<Vec<u32>>,
    of: Vec<Vec<u32>>,
    rates: Vec<RateOfFire>,
    odd: Option<RateOfFire>,
    has_tags: bool,
}

impl Membership {
    pub(crate) fn nodes(&self, hosts: u32) -> u32 {
        match self {
            Self::OneGroup { size, .. } => *size,
            Self::TwoGroups { .. } | Self::Random { .. } => hosts,
        }
    }

    /// Returns r of the rate-of-fire, which is the same for all groups of a node.
    pub(crate) fn r(&self) -> u8 {
        match self {
            Self::OneGroup { rate, .. } | Self::Random { rate, .. } => rate.r,
            Self::TwoGroups { a, .. } => a.r,
        }
    }

    /// Returns c of the rate-of-fire, of the first group if groups differ.
    pub(crate) fn c(&self) -> u8 {
        match self {
            Self::OneGroup { rate, .. } | Self::Random { rate, .. } => rate.c,
            Self::TwoGroups { a, .. } => a.c,
        }
    }

    pub(crate) fn others(&self, hosts: u32) -> f64 {
        match self {
            Self::OneGroup { size, .. } => f64::from(*size),
            Self::TwoGroups { both, .. } => f64::from(hosts + both) / 2.0,
            Self::Random { mean_size, .. } => f64::from(*mean_size),
        }
    }

    pub(crate) fn draw(&self, hosts: u32, rng: &mut Rng) -> Groups {
        let mut all: Vec<u32> = (0..hosts).collect();
        match *self {
            Self::OneGroup { size, rate, odd } => {
                rng.choose_to_front(&mut all, size as usize);
                all.truncate(size as usize);
                all.sort_unstable();
                let odd = (odd != rate).then_some(odd);
                Groups { odd, ..Groups::new(hosts, vec![all], vec![rate], false) }
            }
            Self::TwoGroups { both, a, b } => {
                let only_a = (hosts - both) / 2;
                let in_a = all[..(both + only_a) as usize].to_vec();
                let in_b = all[..both as usize].iter().chain(&all[(both + only_a) as usize..]);
                Groups::new(hosts, vec![in_a, in_b.copied().collect()], vec![a, b], true)
            }
            Self::Random { groups_per_node, mean_size, rate } => {
                let count = (groups_per_node * hosts + mean_size / 2) / mean_size;
                let count = count.max(groups_per_node);
                let mut members = vec![Vec::new(); count as usize];
                let mut choice: Vec<u32> = (0..count).collect();
                for host in 0..hosts {
                    rng.choose_to_front(&mut choice, groups_per_node as usize);
                    for group in &choice[..groups_per_node as usize] {
                        members[*group as usize].push(host);
                    }
                }
                Groups::new(hosts, members, vec![rate; count as usize], false)
            }
        }
    }
}

impl Groups {
    fn new(hosts: u32, members: Vec<Vec<u32>>, rates: Vec<RateOfFire>, has_tags: bool) -> Self {
        let mut of = vec![Vec::new(); hosts as usize];
        for (group, members) in members.iter().enumerate() {
            for member in members {
                of[*member as usize].push(group as u32);
            }
        }
        Self { members, of, rates, odd: None, has_tags }
    }

    /// Adds a host that joins as many random groups as the first host has. Returns its number.
    pub(super) fn welcome(&mut self, rng: &mut Rng) -> u32 {
        let host = self.of.len() as u32;
        let mut choice: Vec<u32> = (0..self.count()).collect();
        let groups_per_node = self.of[0].len();
        rng.choose_to_front(&mut choice, groups_per_node);
        choice.truncate(groups_per_node);
        for group in &choice {
            self.members[*group as usize].push(host);
        }
        choice.sort_unstable();
        self.of.push(choice);
        host
    }

    pub(crate) fn members(&self, group: u32) -> &[u32] {
        &self.members[group as usize]
    }

    pub(crate) fn count(&self) -> u32 {
        self.members.len() as u32
    }

    pub(crate) fn of(&self, host: u32) -> &[u32] {
        &self.of[host as usize]
    }

    pub(crate) fn hosts(&self) -> impl Iterator<Item = u32> {
        let takes_part = |host: &u32| !self.of[*host as usize].is_empty();
        (0..self.of.len() as u32).filter(takes_part)
    }

    pub(crate) fn rate(&self, group: u32, host: u32) -> RateOfFire {
        let place = self.members(group).binary_search(&host).unwrap_or(0);
        self.odd.filter(|_| place % 2 == 1).unwrap_or(self.rates[group as usize])
    }

    pub(crate) fn has_tags(&self) -> bool {
        self.has_tags
    }

    pub(crate) fn tags(&self) -> usize {
        if self.has_tags { self.members.len() } else { 1 }
    }

    pub(crate) fn tag(&self, group: u32) -> usize {
        if self.has_tags { group as usize } else { 0 }
    }

    /// Returns the mean number of packets that a node receives while every node sends one.
    pub(crate) fn mean_received_per_message(&self) -> f64 {
        let hosts: Vec<u32> = self.hosts().collect();
        let others = |host: &u32| {
            let sizes = self.of(*host).iter().map(|group| self.members(*group).len() - 1);
            sizes.sum::<usize>() as f64 / self.of(*host).len() as f64
        };
        let receivers: f64 = hosts.iter().map(others).sum();
        receivers / hosts.len().max(1) as f64
    }
}

impl fmt::Display for Membership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OneGroup { size, rate, odd } if rate == odd => write!(f, "{size} nodes, {rate}"),
            Self::OneGroup { size, rate, odd } => write!(f, "{size} nodes, {rate} and {odd}"),
            Self::TwoGroups { both, a, b } => write!(f, "groups {a}, {b}, {both} nodes in both"),
            Self::Random { groups_per_node, rate, .. } => {
                write!(f, "{groups_per_node} groups per node, {rate}")
            }
        }
    }
}

pub(crate) fn node_id(host: u32) -> NodeId {
    NodeId(u64::from(host) + 1)
}

pub(crate) fn group_id(group: u32) -> GroupId {
    GroupId(group + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: RateOfFire = RateOfFire::new(8, 5);

    fn distinct(items: &[u32]) -> bool {
        items.iter().collect::<std::collections::BTreeSet<_>>().len() == items.len()
    }

    #[test]
    fn every_node_joins_its_number_of_distinct_groups() {
        let membership = Membership::Random { groups_per_node: 64, mean_size: 10, rate: RATE };
        let groups = membership.draw(64, &mut Rng::new(1));
        assert_eq!(groups.count(), 410);
        for host in 0..64 {
            assert_eq!(groups.of(host).len(), 64);
            assert!(distinct(groups.of(host)));
        }
        let received = groups.mean_received_per_message();
        assert!((9.0..11.0).contains(&received), "{received}");
    }

    #[test]
    fn two_groups_share_as_many_nodes_as_asked_for() {
        for both in [0, 6, 16] {
            let groups =
                Membership::TwoGroups { both, a: RATE, b: RATE }.draw(16, &mut Rng::new(1));
            let shared = (0..16).filter(|host| groups.of(*host).len() == 2).count();
            assert_eq!(shared, both as usize);
            assert_eq!(groups.members(0).len(), groups.members(1).len());
            assert_eq!(groups.hosts().count(), 16);
            assert_eq!((groups.tags(), groups.tag(1)), (2, 1));
        }
    }

    #[test]
    fn every_other_member_has_the_odd_rate() {
        let odd = RateOfFire::new(8, 4);
        let groups = Membership::OneGroup { size: 10, rate: RATE, odd }.draw(40, &mut Rng::new(2));
        let members = groups.members(0);
        assert!(members.len() == 10 && distinct(members));
        let odds = members.iter().filter(|host| groups.rate(0, **host) == odd).count();
        assert_eq!(odds, 5);
    }
}

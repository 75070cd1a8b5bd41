use carom_proto::Rng;
use carom_terminal::{CliError, counted};

use super::args::Args;

#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) members: Vec<Vec<usize>>,
    pub(crate) groups_of: Vec<Vec<usize>>,
    pub(crate) rng: Rng,
}

impl Plan {
    pub(crate) fn new(args: &Args) -> Result<Self, CliError> {
        let nodes = args.nodes;
        let size = args.group_size.unwrap_or_else(|| default_size(nodes));
        if size > nodes {
            return Err(CliError::new(
                format!("groups of {size} members are not possible with {nodes} nodes"),
                format!("use --group-size {nodes} or less, or --nodes {size} or more"),
            ));
        }
        let mut rng = Rng::new(args.seed);
        let members: Vec<Vec<usize>> =
            (0..args.groups).map(|_| draw(&mut rng, nodes, size)).collect();
        let mut groups_of = vec![Vec::new(); nodes];
        for (group, members) in members.iter().enumerate() {
            for node in members {
                groups_of[*node].push(group);
            }
        }
        Ok(Self { members, groups_of, rng })
    }

    pub(crate) fn describe(&self, args: &Args) -> String {
        let all = size_of_all(args.nodes, args.groups);
        let size = self.members.first().map_or(0, Vec::len);
        let burst = args.burst.map(|burst| format!(" in bursts of {burst}")).unwrap_or_default();
        format!(
            "{all} of {size}, {}/s each for {:?}, {:.3} % loss{burst}, \
             rate-of-fire {}, seed {}",
            args.rate,
            args.seconds,
            args.loss * 100.0,
            args.rate_of_fire,
            args.seed
        )
    }
}

fn size_of_all(nodes: usize, groups: usize) -> String {
    format!("{} in {}", counted(nodes, "node"), counted(groups, "group"))
}

fn default_size(nodes: usize) -> usize {
    10.min(nodes - 1).max(2)
}

fn draw(rng: &mut Rng, nodes: usize, size: usize) -> Vec<usize> {
    let mut all: Vec<usize> = (0..nodes).collect();
    rng.choose_to_front(&mut all, size);
    all.truncate(size);
    all.sort_unstable();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_has_ten_members_or_one_less_than_there_are_nodes() {
        assert_eq!([2, 3, 4, 8, 11, 64].map(default_size), [2, 2, 3, 7, 10, 10]);
    }

    #[test]
    fn one_group_is_singular() {
        assert_eq!(size_of_all(8, 1), "8 nodes in 1 group");
        assert_eq!(size_of_all(2, 32), "2 nodes in 32 groups");
    }

    #[test]
    fn members_are_distinct_and_come_from_the_seed() {
        let draw_all = |seed| {
            let mut rng = Rng::new(seed);
            (0..50).map(|_| draw(&mut rng, 8, 7)).collect::<Vec<_>>()
        };
        for members in draw_all(1) {
            assert_eq!(members.len(), 7);
            assert!(members.windows(2).all(|pair| pair[0] < pair[1]), "{members:?}");
            assert!(members.iter().all(|node| *node < 8));
        }
        assert_eq!(draw_all(1), draw_all(1));
        assert_ne!(draw_all(1), draw_all(2));
    }
}

use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hasher as _};

use crate::record::Record;

/// Returns the hash of the order of the first deliveries within each group. Message number `n` is
/// in group `n` modulo `groups`.
pub(super) fn hash(delivered: &[Record], groups: u32) -> String {
    let mut seen = HashSet::new();
    let mut orders: BTreeMap<u32, DefaultHasher> = BTreeMap::new();
    for record in delivered {
        if seen.insert((record.sender, record.number)) {
            let order = orders.entry(record.number % groups).or_default();
            order.write_u32(record.sender);
            order.write_u32(record.number);
        }
    }
    let mut all = DefaultHasher::new();
    for (group, order) in orders {
        all.write_u32(group);
        all.write_u64(order.finish());
    }
    format!("{:016x}", all.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(numbers: &[u32]) -> Vec<Record> {
        numbers.iter().map(|number| Record { sender: 0, number: *number, at_ns: 0 }).collect()
    }

    #[test]
    fn order_counts_within_a_group_and_without_duplicates() {
        let hash = |numbers: &[u32], groups| hash(&records(numbers), groups);
        assert_eq!(hash(&[0, 1, 2, 3], 1), hash(&[0, 1, 0, 2, 3, 3], 1));
        assert_ne!(hash(&[0, 1, 2, 3], 1), hash(&[1, 0, 2, 3], 1));
        assert_eq!(hash(&[0, 1, 2, 3], 2), hash(&[1, 0, 2, 3], 2));
        assert_ne!(hash(&[0, 1, 2, 3], 2), hash(&[2, 1, 0, 3], 2));
        assert_ne!(hash(&[0, 1, 2], 1), hash(&[0, 1, 2, 3], 1));
    }
}

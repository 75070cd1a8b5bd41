use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hasher as _};

use crate::record::Record;

/// Returns the hash of the order of the first deliveries within each group. Message number `n` is
/// in group `n` modulo `groups`.
pub(super) fn hash(delivered: &[Record], groups: u32) -> String {
    let mut orders: BTreeMap<u32, DefaultHasher> = BTreeMap::new();
    for record in first_deliveries(delivered) {
        let order = orders.entry(record.number % groups).or_default();
        order.write_u32(record.sender);
        order.write_u32(record.number);
    }
    let mut all = DefaultHasher::new();
    for (group, order) in orders {
        all.write_u32(group);
        all.write_u64(order.finish());
    }
    format!("{:016x}", all.finish())
}

/// Returns the number of first deliveries that come after that of a later message of the same
/// sender and group.
pub(super) fn violations(delivered: &[Record], groups: u32) -> u64 {
    let mut newest: HashMap<(u32, u32), u32> = HashMap::new();
    let mut violations = 0;
    for record in first_deliveries(delivered) {
        let newest = newest.entry((record.sender, record.number % groups)).or_default();
        violations += u64::from(record.number < *newest);
        *newest = record.number.max(*newest);
    }
    violations
}

/// Returns the first delivery of each message, in their order.
fn first_deliveries(delivered: &[Record]) -> impl Iterator<Item = &Record> {
    let mut seen = HashSet::new();
    delivered.iter().filter(move |record| seen.insert((record.sender, record.number)))
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

    #[test]
    fn source_order_is_that_of_first_deliveries_in_a_group() {
        let violations = |numbers: &[u32], groups| violations(&records(numbers), groups);
        assert_eq!(violations(&[0, 1, 3, 4], 1), 0, "a gap is no violation");
        assert_eq!(violations(&[0, 1, 0, 2, 1], 1), 0, "nor is a duplicate");
        assert_eq!(violations(&[0, 3, 1, 2, 4], 1), 2);
        assert_eq!(violations(&[1, 0, 3, 2], 2), 0, "groups are independent");
        let others = [(0, 5), (1, 0), (0, 6), (1, 1)];
        let others = others.map(|(sender, number)| Record { sender, number, at_ns: 0 });
        assert_eq!(super::violations(&others, 1), 0, "and so are senders");
    }
}

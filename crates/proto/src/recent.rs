//! A bounded map that evicts its oldest entry.

use alloc::collections::BTreeMap;
use core::ops::RangeInclusive;

#[derive(Debug)]
pub(crate) struct Recent<K, V> {
    entries: BTreeMap<K, (u64, V)>,
    order: BTreeMap<u64, K>,
    insertions: u64,
}

impl<K, V> Default for Recent<K, V> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), order: BTreeMap::new(), insertions: 0 }
    }
}

impl<K: Copy + Ord, V> Recent<K, V> {
    /// Inserts or replaces an entry, which becomes the newest one. Keeps at most `limit` entries.
    pub(crate) fn insert(&mut self, key: K, value: V, limit: usize) {
        self.insertions += 1;
        self.order.insert(self.insertions, key);
        if let Some((number, _)) = self.entries.insert(key, (self.insertions, value)) {
            self.order.remove(&number);
        }
        while self.entries.len() > limit {
            let (_, oldest) = self.order.pop_first().expect("every entry is in the order");
            self.entries.remove(&oldest);
        }
    }

    pub(crate) fn get(&self, key: K) -> Option<&V> {
        self.entries.get(&key).map(|(_, value)| value)
    }

    pub(crate) fn get_mut(&mut self, key: K) -> Option<&mut V> {
        self.entries.get_mut(&key).map(|(_, value)| value)
    }

    pub(crate) fn remove(&mut self, key: K) -> Option<V> {
        let (number, value) = self.entries.remove(&key)?;
        self.order.remove(&number);
        Some(value)
    }

    pub(crate) fn range(&self, keys: RangeInclusive<K>) -> impl Iterator<Item = (&K, &V)> {
        self.entries.range(keys).map(|(key, (_, value))| (key, value))
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.order.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_inserted_first_are_forgotten_whatever_their_keys() {
        let mut recent = Recent::default();
        for key in [9, 5, 7, 9, 1] {
            recent.insert(key, key * 10, 3);
        }
        assert_eq!(
            [9, 5, 7, 1].map(|key| recent.get(key).copied()),
            [Some(90), None, Some(70), Some(10)]
        );
        assert_eq!(recent.get_mut(9), Some(&mut 90));
        assert_eq!([recent.remove(9), recent.remove(9)], [Some(90), None]);
        recent.insert(0, 0, 3);
        assert!(recent.range(0..=9).map(|(key, _)| *key).eq([0, 1, 7]), "room was made");
        assert_eq!((recent.order.len(), recent.len()), (3, 3));
        recent.insert(2, 20, 0);
        assert_eq!((recent.order.len(), recent.len()), (0, 0));
    }
}

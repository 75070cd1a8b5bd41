//! A hash map for ids that come from the network, without an order.

use core::fmt;
use core::hash::Hash;

use foldhash::fast::FixedState;

/// A map that can be asked but not walked through: its order depends on the hasher, and nothing an
/// engine does may. The hash is keyed with the engine's seed, so that the map behaves the same for
/// the same seed while a stranger cannot choose colliding ids.
#[allow(clippy::disallowed_types, reason = "fixed hasher, and no way to iterate")]
pub struct IdMap<K, V>(std::collections::HashMap<K, V, FixedState>);

impl<K: Hash + Eq, V> IdMap<K, V> {
    /// An empty map whose hash is keyed with `seed`.
    #[allow(clippy::disallowed_types, reason = "as on the type")]
    pub fn new(seed: u64) -> Self {
        Self(std::collections::HashMap::with_hasher(FixedState::with_seed(seed)))
    }

    /// The value of `key`.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.0.get(key)
    }

    /// The value of `key`, to change.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.0.get_mut(key)
    }

    /// The value of `key`, which is `make()` if it had none.
    pub fn get_or_insert_with(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        self.0.entry(key).or_insert_with(make)
    }

    /// Gives `key` the value; returns the one it had.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.0.insert(key, value)
    }

    /// Takes `key` out.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        self.0.remove(key)
    }

    /// Whether `key` is there.
    pub fn contains(&self, key: &K) -> bool {
        self.0.contains_key(key)
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<K, V> fmt::Debug for IdMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IdMap({} keys)", self.0.len())
    }
}

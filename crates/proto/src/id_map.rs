use core::fmt;
use core::hash::Hash;

use foldhash::fast::FixedState;

/// A map that supports lookups but not iteration.
///
/// The iteration order would depend on the hasher, but an engine's output must not. The hash is
/// keyed with the engine's seed, so that colliding ids cannot be computed in advance.
#[allow(clippy::disallowed_types, reason = "fixed hasher, and no way to iterate")]
pub struct IdMap<K, V>(std::collections::HashMap<K, V, FixedState>);

impl<K: Hash + Eq, V> IdMap<K, V> {
    /// Creates an empty map whose hash is keyed with `seed`.
    #[allow(clippy::disallowed_types, reason = "as on the type")]
    pub fn new(seed: u64) -> Self {
        Self(std::collections::HashMap::with_hasher(FixedState::with_seed(seed)))
    }

    /// Returns a reference to the value of `key`.
    #[inline]
    pub fn get(&self, key: &K) -> Option<&V> {
        self.0.get(key)
    }

    /// Returns a mutable reference to the value of `key`.
    #[inline]
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.0.get_mut(key)
    }

    /// Returns the value of `key`. Inserts `make()` first if the key has no value.
    #[inline]
    pub fn get_or_insert_with(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        self.0.entry(key).or_insert_with(make)
    }

    /// Sets the value of `key`, and returns the previous value.
    #[inline]
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.0.insert(key, value)
    }

    /// Removes `key`, and returns its value.
    #[inline]
    pub fn remove(&mut self, key: &K) -> Option<V> {
        self.0.remove(key)
    }

    /// Returns `true` if `key` has a value.
    #[inline]
    pub fn contains(&self, key: &K) -> bool {
        self.0.contains_key(key)
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns `true` if the map is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<K, V> fmt::Debug for IdMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IdMap({} keys)", self.0.len())
    }
}

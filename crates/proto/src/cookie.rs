//! Cookies: stateless proofs that a node receives the datagrams sent to its address.

use core::hash::{Hash, Hasher};

use siphasher::sip::SipHasher24;

use crate::Rng;

#[derive(Clone, Copy, Debug)]
pub(crate) struct CookieKey(u64, u64);

impl CookieKey {
    pub(crate) fn new(rng: &mut Rng) -> Self {
        Self(rng.next_u64(), rng.next_u64())
    }

    /// Returns the cookie of `asker`, a keyed hash that is never 0.
    pub(crate) fn cookie_of(&self, asker: impl Hash) -> u64 {
        let mut hasher = SipHasher24::new_with_keys(self.0, self.1);
        asker.hash(&mut hasher);
        hasher.finish().max(1)
    }
}

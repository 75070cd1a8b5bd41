//! Shares of the file descriptors of a registry process.

use nix::sys::resource::{Resource, getrlimit};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptors {
    pub(crate) links: usize,
    /// Share of `links` for connections that have not sent a hello yet.
    pub(crate) new_links: usize,
    pub(crate) http: usize,
}

/// Descriptors reserved for the store, the listeners, the runtime and the rest of the program.
const OWN: usize = 32;
/// Maximum number of HTTP connections. Few scrapers and operators connect at the same time.
const MOST_HTTP: usize = 64;
const MOST_NEW_LINKS: usize = 256;

impl Descriptors {
    pub(crate) fn of_process() -> Self {
        let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _)| soft);
        Self::of(usize::try_from(limit).unwrap_or(usize::MAX))
    }

    fn of(limit: usize) -> Self {
        let http = (limit / 8).clamp(1, MOST_HTTP);
        let links = limit.saturating_sub(OWN + http).max(1);
        Self { links, new_links: (links / 4).clamp(1, MOST_NEW_LINKS), http }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_shares_together_stay_below_the_limit_of_the_process() {
        for limit in [64, 256, 1024, 65_536] {
            let shares = Descriptors::of(limit);
            assert!(shares.links + shares.http + OWN <= limit, "{limit}: {shares:?}");
            assert!(shares.new_links <= shares.links / 4, "{limit}: {shares:?}");
        }
        let small = Descriptors { links: 192, new_links: 48, http: 32 };
        assert_eq!(Descriptors::of(256), small);
        assert_eq!(Descriptors::of(1024).http, 64);
    }
}

//! What may be drawn for the scenario of which seed.

use core::ops::Range;

/// Returns `true` if the scenario of this seed may have what scenarios were given after the first
/// seeds that had failed were kept: restarts under kept ids, forged packets, numbers near the wrap,
/// long paths, and policies for slow receivers.
pub(crate) fn may_be_later(seed: u64) -> bool {
    !FIRST_KEPT.contains(&seed)
}

/// The seeds among which those are that were kept first. The small ones, with which every run
/// begins, are not among them: they find what is new.
const FIRST_KEPT: Range<u64> = 660_000_000..700_000_000;

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use carom_proto::rdcm::Slowest;

    use crate::bulk::{self, Deed, Settings};
    use crate::fuzz::{Act, Scenario};

    /// Counts the scenarios of lateral groups that have something later.
    fn later(seeds: impl Iterator<Item = u64>) -> usize {
        let is_later = |seed: &u64| {
            let scenario = Scenario::of_seed(*seed);
            let cast = scenario.cast();
            let is_of_act = |act: &Act| matches!(act, Act::Bounce(_) | Act::Forge(..));
            cast.keeps_ids
                || cast.distance > Duration::ZERO
                || scenario.acts.iter().any(|(_, act)| is_of_act(act))
        };
        seeds.filter(is_later).count()
    }

    /// Counts those of bulk groups.
    fn later_bulk(seeds: impl Iterator<Item = u64>) -> usize {
        let is_later = |seed: &u64| {
            let (scenario, settings) = (bulk::Scenario::of_seed(*seed), Settings::of_seed(*seed));
            let is_of_deed = |deed: &Deed| matches!(deed, Deed::Bounce(_) | Deed::Forge { .. });
            settings.keeps_ids
                || settings.config.first_epoch.or(settings.config.first_stream).is_some()
                || settings.config.slowest != Slowest::default()
                || settings.link.delay > Duration::from_millis(1)
                || scenario.deeds.iter().any(|(_, deed)| is_of_deed(deed))
        };
        seeds.filter(is_later).count()
    }

    #[test]
    fn seeds_kept_first_play_what_there_was_then() {
        assert_eq!(later([660_000_196, 660_000_406, 660_000_893].into_iter()), 0);
        let found = [660_001_140, 660_001_889, 661_005_148, 661_008_363, 661_017_054];
        assert_eq!(later_bulk(found.into_iter()), 0);
        let first = (660_000_000..700_000_000).step_by(199_999);
        assert_eq!((later(first.clone()), later_bulk(first)), (0, 0));
    }

    #[test]
    fn other_seeds_play_what_was_added_later() {
        for from in [0, 659_999_900, 700_000_000] {
            assert!(later(from..from + 100) > 30, "from {from}");
            assert!(later_bulk(from..from + 100) > 60, "from {from}");
        }
    }
}

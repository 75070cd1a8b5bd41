//! The draws that depend on the range of the seed.

use core::ops::Range;

/// Returns `true` if the scenario of this seed may have features that were added after the first
/// failing seeds were kept: restarts under kept ids, forged packets, numbers near the wrap, long
/// paths, and policies for slow receivers.
pub(crate) fn may_be_later(seed: u64) -> bool {
    !FIRST_KEPT.contains(&seed)
}

/// Range of the seeds that were kept first. Small seeds, with which every run begins, are outside
/// of it and cover the new features.
const FIRST_KEPT: Range<u64> = 660_000_000..700_000_000;

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use carom_proto::SeqNo;
    use carom_proto::rdcm::Slowest;

    use crate::fuzz::Act;
    use crate::{bulk, fuzz, ordered};

    /// Later features of scenarios, and the number of scenarios that have them.
    type Counts<const N: usize> = [(&'static str, usize); N];

    /// Counts the scenarios of lateral groups.
    fn lateral(seeds: impl Iterator<Item = u64> + Clone) -> Counts<4> {
        let count = |has: &dyn Fn(fuzz::Scenario) -> bool| {
            seeds.clone().filter(|seed| has(fuzz::Scenario::of_seed(*seed))).count()
        };
        [
            ("kept ids", count(&|it| it.cast().keeps_ids)),
            ("long paths", count(&|it| it.cast().distance > Duration::ZERO)),
            ("quick restarts", count(&|it| it.acts.iter().any(|it| is_bounce(&it.1)))),
            ("forged packets", count(&|it| it.acts.iter().any(|it| is_forgery(&it.1)))),
        ]
    }

    /// Counts the scenarios of bulk groups.
    fn bulk(seeds: impl Iterator<Item = u64> + Clone) -> Counts<8> {
        let of_deeds = |has: &dyn Fn(&bulk::Deed) -> bool| {
            let deeds = |seed| bulk::Scenario::of_seed(seed).deeds;
            seeds.clone().filter(|seed| deeds(*seed).iter().any(|it| has(&it.1))).count()
        };
        let of_settings = |has: &dyn Fn(bulk::Settings) -> bool| {
            seeds.clone().filter(|seed| has(bulk::Settings::of_seed(*seed))).count()
        };
        [
            ("kept ids", of_settings(&|it| it.keeps_ids)),
            ("long paths", of_settings(&|it| it.link.delay > Duration::from_millis(1))),
            ("epochs that wrap", of_settings(&|it| it.config.first_epoch.is_some())),
            ("streams that wrap", of_settings(&|it| it.config.first_stream.is_some())),
            ("numbers that wrap", of_settings(&|it| it.config.first_number != SeqNo::FIRST)),
            ("policies", of_settings(&|it| it.config.slowest != Slowest::default())),
            ("quick restarts", of_deeds(&|it| matches!(it, bulk::Deed::Bounce(_)))),
            ("forged packets", of_deeds(&|it| matches!(it, bulk::Deed::Forge { .. }))),
        ]
    }

    /// Counts the scenarios of token rings.
    fn rings(seeds: impl Iterator<Item = u64> + Clone) -> Counts<7> {
        let count = |has: &dyn Fn(&ordered::Scenario) -> bool| {
            seeds.clone().filter(|seed| has(&ordered::Scenario::of_seed(*seed))).count()
        };
        let has_act = |scenario: &ordered::Scenario, has: fn(&Act) -> bool| {
            let acts = scenario.deeds.iter();
            acts.clone().any(|(_, it)| matches!(it, ordered::Deed::Act(act) if has(act)))
        };
        // A storm has requests of all hosts within 2 ms.
        let has_storm = |it: &ordered::Scenario| {
            let is_lock = |it: &ordered::Deed| matches!(it, ordered::Deed::Lock(..));
            let locks: Vec<_> = it.deeds.iter().filter(|(_, it)| is_lock(it)).collect();
            let mut storms = locks.windows(it.hosts as usize);
            storms.any(|them| them[them.len() - 1].0 - them[0].0 < Duration::from_millis(2))
        };
        let wraps = |it: &ordered::Scenario| {
            ordered::Settings::of_seed(it.seed, it.hosts).config.first_number != SeqNo::FIRST
        };
        [
            ("kept ids", count(&|it| it.cast().keeps_ids)),
            ("long paths", count(&|it| it.cast().distance > Duration::ZERO)),
            ("numbers that wrap", count(&wraps)),
            ("mass joins", count(&|it| it.hosts > 9)),
            ("storms of requests for locks", count(&has_storm)),
            ("quick restarts", count(&|it| has_act(it, is_bounce))),
            ("forged packets", count(&|it| has_act(it, is_forgery))),
        ]
    }

    fn is_bounce(act: &Act) -> bool {
        matches!(act, Act::Bounce(_))
    }

    fn is_forgery(act: &Act) -> bool {
        matches!(act, Act::Forge(..))
    }

    #[test]
    fn seeds_kept_first_play_what_there_was_then() {
        let is_none = |(_, count): &(&str, usize)| *count == 0;
        let found = [660_000_196, 660_000_406, 660_000_893].into_iter();
        assert!(lateral(found).iter().all(is_none));
        let found = [660_001_140, 660_001_889, 661_005_148, 661_008_363, 661_017_054].into_iter();
        assert!(bulk(found).iter().all(is_none));
        let first = (660_000_000..700_000_000).step_by(199_999);
        assert!(lateral(first.clone()).iter().chain(&bulk(first)).all(is_none));
    }

    #[test]
    fn other_seeds_play_what_was_added_later() {
        for from in [0, 659_999_800, 700_000_000, 2_000_000_000] {
            let seeds = from..from + 200;
            let counts = lateral(seeds.clone()).into_iter().chain(bulk(seeds));
            for (what, count) in counts {
                assert!(count >= 3, "from {from}: {count} of 200 scenarios have {what}");
            }
        }
        for (what, count) in rings(2_000_000_000..2_000_000_200) {
            assert!(count >= 3, "{count} of 200 scenarios of rings have {what}");
        }
    }
}

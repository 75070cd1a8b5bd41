//! Draws that depend on the range of the seed.

use core::ops::Range;

use carom_proto::Rng;

/// Returns `true` if the scenario may have features that are newer than the first kept seeds.
pub(crate) fn may_be_later(seed: u64) -> bool {
    !FIRST_KEPT.contains(&seed)
}

/// Returns `true` in two of five later scenarios. The draw does not influence any other.
pub(crate) fn keeps_ids(seed: u64) -> bool {
    may_be_later(seed) && Rng::new(seed ^ 0xf1ed_1d50).chance(0.4)
}

/// Range of the seeds that were kept first. All other seeds cover the new features.
const FIRST_KEPT: Range<u64> = 660_000_000..700_000_000;

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use carom_proto::SeqNo;
    use carom_proto::rdcm::Slowest;

    use crate::{Step, lateral, rdcm, rmp};

    type Counts<const N: usize> = [(&'static str, usize); N];

    fn count<T>(all: &[T], has: impl Fn(&T) -> bool) -> usize {
        all.iter().filter(|it| has(it)).count()
    }

    fn lateral(seeds: impl Iterator<Item = u64>) -> Counts<4> {
        let all: Vec<_> = seeds.map(lateral::scenario).collect();
        [
            ("kept ids", count(&all, |it| it.participants.keeps_ids)),
            ("long paths", count(&all, |it| it.participants.distance > Duration::ZERO)),
            ("quick restarts", count(&all, |it| it.steps.iter().any(is_bounce))),
            ("forged packets", count(&all, |it| it.steps.iter().any(is_forgery))),
        ]
    }

    fn bulk(seeds: impl Iterator<Item = u64> + Clone) -> Counts<8> {
        let all: Vec<_> = seeds.clone().map(rdcm::Settings::of_seed).collect();
        let steps: Vec<_> = seeds.map(|seed| rdcm::scenario(seed).steps).collect();
        let is_bounce = |(_, step): &(_, _)| matches!(step, rdcm::Step::Bounce(_));
        let is_forgery = |(_, step): &(_, _)| matches!(step, rdcm::Step::Forge { .. });
        [
            ("kept ids", count(&all, |it| it.keeps_ids)),
            ("long paths", count(&all, |it| it.link.delay > Duration::from_millis(1))),
            ("epochs that wrap", count(&all, |it| it.config.first_epoch.is_some())),
            ("streams that wrap", count(&all, |it| it.config.first_stream.is_some())),
            ("numbers that wrap", count(&all, |it| it.config.first_number != SeqNo::FIRST)),
            ("policies", count(&all, |it| it.config.slowest != Slowest::default())),
            ("quick restarts", count(&steps, |it| it.iter().any(is_bounce))),
            ("forged packets", count(&steps, |it| it.iter().any(is_forgery))),
        ]
    }

    fn rings(seeds: impl Iterator<Item = u64>) -> Counts<7> {
        let all: Vec<_> = seeds.map(rmp::scenario).collect();
        // A storm consists of requests of all hosts within 2 ms.
        let has_storm = |hosts: u32, steps: &[(Duration, Step<rmp::Action>)]| {
            let is_lock = |it: &Step<rmp::Action>| matches!(it, Step::Act(rmp::Action::Lock(..)));
            let locks: Vec<_> = steps.iter().filter(|(_, it)| is_lock(it)).collect();
            let mut storms = locks.windows(hosts as usize);
            storms.any(|them| them[them.len() - 1].0 - them[0].0 < Duration::from_millis(2))
        };
        let wraps =
            |seed, hosts| rmp::Settings::of_seed(seed, hosts).config.first_number != SeqNo::FIRST;
        [
            ("kept ids", count(&all, |it| it.participants.keeps_ids)),
            ("long paths", count(&all, |it| it.participants.distance > Duration::ZERO)),
            ("numbers that wrap", count(&all, |it| wraps(it.seed, it.participants.hosts))),
            ("mass joins", count(&all, |it| it.participants.hosts > 9)),
            ("lock storms", count(&all, |it| has_storm(it.participants.hosts, &it.steps))),
            ("quick restarts", count(&all, |it| it.steps.iter().any(is_bounce))),
            ("forged packets", count(&all, |it| it.steps.iter().any(is_forgery))),
        ]
    }

    fn is_bounce<A>((_, step): &(Duration, Step<A>)) -> bool {
        matches!(step, Step::Bounce(_))
    }

    fn is_forgery<A>((_, step): &(Duration, Step<A>)) -> bool {
        step.forgery().is_some()
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

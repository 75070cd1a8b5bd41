//! Makes a failing scenario smaller: what can be left out, is.

use core::time::Duration;

use super::scenario::{Act, Scenario};

/// Leaves out acts, in ever smaller pieces, for as long as `fails` still says so and `budget`
/// runs last (the delta debugging of Zeller and Hildebrandt, without its complements of subsets).
pub(super) fn shrink(
    scenario: &Scenario,
    mut budget: u32,
    fails: &mut dyn FnMut(&Scenario) -> bool,
) -> Scenario {
    let mut best = scenario.clone();
    let mut piece = best.acts.len().div_ceil(2);
    while piece > 0 && budget > 0 {
        let mut from = 0;
        let mut has_shrunk = false;
        while from < best.acts.len() && budget > 0 {
            let to = (from + piece).min(best.acts.len());
            let acts: Vec<(Duration, Act)> = [&best.acts[..from], &best.acts[to..]].concat();
            let candidate = Scenario { acts, ..best.clone() };
            budget -= 1;
            if fails(&candidate) {
                best = candidate;
                has_shrunk = true;
            } else {
                from = to;
            }
        }
        if !has_shrunk || piece > best.acts.len() {
            piece /= 2;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HostIx;

    #[test]
    fn what_a_failure_does_not_need_is_left_out() {
        let mut scenario = Scenario::of_seed(3);
        scenario.acts = (0..40)
            .map(|number| (Duration::from_millis(number), Act::Crash(HostIx(number as u32))))
            .collect();
        let mut runs = 0;
        let small = shrink(&scenario, 200, &mut |candidate| {
            runs += 1;
            let has = |host| candidate.acts.iter().any(|(_, act)| *act == Act::Crash(HostIx(host)));
            has(7) && has(31)
        });
        assert_eq!(small.acts.len(), 2, "{small}");
        assert!(runs <= 200);
    }
}

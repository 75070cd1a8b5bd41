use core::time::Duration;

/// Removes ever smaller ranges of steps without which `fails` still returns `true`, with at most
/// `budget` runs (delta debugging by Zeller and Hildebrandt, without complements of subsets).
pub(super) fn shrink<S: Clone>(
    steps: &[(Duration, S)],
    mut budget: u32,
    fails: &mut dyn FnMut(Vec<(Duration, S)>) -> bool,
) -> Vec<(Duration, S)> {
    let mut best = steps.to_vec();
    let mut length = best.len().div_ceil(2);
    while length > 0 && budget > 0 {
        let mut from = 0;
        let mut has_shrunk = false;
        while from < best.len() && budget > 0 {
            let to = (from + length).min(best.len());
            let candidate = [&best[..from], &best[to..]].concat();
            budget -= 1;
            if fails(candidate.clone()) {
                best = candidate;
                has_shrunk = true;
            } else {
                from = to;
            }
        }
        if !has_shrunk || length > best.len() {
            length /= 2;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_failure_does_not_need_is_left_out() {
        let steps: Vec<(Duration, u64)> =
            (0..40).map(|number| (Duration::from_millis(number), number)).collect();
        let mut runs = 0;
        let small = shrink(&steps, 200, &mut |candidate| {
            runs += 1;
            [7, 31].iter().all(|wanted| candidate.iter().any(|(_, number)| number == wanted))
        });
        assert_eq!(small, [(Duration::from_millis(7), 7), (Duration::from_millis(31), 31)]);
        assert!(runs <= 200);
    }
}

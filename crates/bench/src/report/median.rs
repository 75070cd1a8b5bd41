use carom_figures::significant;

/// The median of a metric over the repetitions of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Median {
    pub(super) value: f64,
    /// Largest minus smallest value, in percent of the median. `None` for a single run.
    spread: Option<f64>,
}

impl Median {
    /// Returns `None` if any run has no value.
    pub(super) fn of(values: impl Iterator<Item = Option<f64>>) -> Option<Self> {
        let mut values: Vec<f64> = values.collect::<Option<_>>()?;
        values.sort_by(f64::total_cmp);
        let (first, last) = (*values.first()?, *values.last()?);
        let half = values.len() / 2;
        let value = match values.len() % 2 {
            0 => f64::midpoint(values[half - 1], values[half]),
            _ => values[half],
        };
        let is_repeated = values.len() > 1 && value != 0.0;
        Some(Self { value, spread: is_repeated.then(|| 100.0 * (last - first) / value) })
    }

    pub(super) fn text(self) -> String {
        match self.spread {
            Some(spread) => format!("{} ({spread:.0} %)", short(self.value)),
            None => short(self.value),
        }
    }
}

/// Formats a number to three significant digits.
pub(super) fn short(number: f64) -> String {
    if !number.is_finite() {
        return String::new();
    }
    let rounded: f64 = format!("{number:.2e}").parse().expect("a formatted number is valid");
    significant(rounded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_repetitions_has_their_spread() {
        let median = |values: &[f64]| Median::of(values.iter().copied().map(Some));
        assert_eq!(median(&[3.0]), Some(Median { value: 3.0, spread: None }));
        assert_eq!(median(&[5.0, 1.0, 2.0]), Some(Median { value: 2.0, spread: Some(200.0) }));
        assert_eq!(median(&[3.0, 1.0]), Some(Median { value: 2.0, spread: Some(100.0) }));
        assert_eq!(median(&[]), None);
        assert_eq!(Median::of([Some(1.0), None].into_iter()), None);
    }
}

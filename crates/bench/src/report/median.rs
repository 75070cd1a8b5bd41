use carom_figures::significant;

/// The median of a metric over the runs of a system.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Median {
    pub(super) value: f64,
    pub(super) least: f64,
    pub(super) most: f64,
    runs: usize,
}

impl Median {
    /// Returns `None` if any run has no value.
    pub(super) fn of(values: impl Iterator<Item = Option<f64>>) -> Option<Self> {
        let mut values: Vec<f64> = values.collect::<Option<_>>()?;
        values.sort_by(f64::total_cmp);
        let (least, most, runs) = (*values.first()?, *values.last()?, values.len());
        let half = runs / 2;
        let value = match runs % 2 {
            0 => f64::midpoint(values[half - 1], values[half]),
            _ => values[half],
        };
        Some(Self { value, least, most, runs })
    }

    /// Returns the value, and the largest minus the smallest one in percent of it.
    pub(super) fn text(self) -> String {
        let Self { value, least, most, runs } = self;
        match runs > 1 && value != 0.0 {
            true => format!("{} ({:.0} %)", short(value), 100.0 * (most - least) / value),
            false => short(value),
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
        let text = |values: &[f64]| median(values).map(Median::text);
        assert_eq!(text(&[3.0]).as_deref(), Some("3"));
        assert_eq!(text(&[5.0, 1.0, 2.0]).as_deref(), Some("2 (200 %)"));
        assert_eq!(text(&[3.0, 1.0]).as_deref(), Some("2 (100 %)"));
        assert_eq!(median(&[]), None);
        assert_eq!(Median::of([Some(1.0), None].into_iter()), None);
    }
}

use std::cmp::Ordering;

use serde::Serialize;

use crate::table::Spread;

/// A relation that must hold between a measured value and a limit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Relation {
    /// Claim that the relation checks, in words.
    pub claim: String,
    /// Measured value in the worst case: the mean of the runs with different seeds.
    pub measured: f64,
    /// Smallest measured value of the runs.
    pub min: f64,
    /// Largest measured value of the runs.
    pub max: f64,
    /// Side of the limit on which the value must be.
    pub sense: Sense,
    /// Limit of the measured value.
    pub limit: f64,
    /// Unit of the measured value, the limit and the margin.
    pub unit: &'static str,
    /// `true` if the relation holds.
    pub holds: bool,
    /// Distance of the measured value from the limit: negative or NaN if the relation is violated.
    pub margin: f64,
    /// Setting of the worst case, or an explanation. It can be empty.
    pub note: String,
}

/// The side of a limit on which a value must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Sense {
    /// The value must be at or above the limit.
    AtLeast,
    /// The value must be at or below the limit.
    AtMost,
}

impl Relation {
    pub(crate) fn at_least(
        claim: impl Into<String>,
        measured: f64,
        limit: f64,
        unit: &'static str,
    ) -> Self {
        Self::new(claim.into(), measured, Sense::AtLeast, limit, unit)
    }

    pub(crate) fn at_most(
        claim: impl Into<String>,
        measured: f64,
        limit: f64,
        unit: &'static str,
    ) -> Self {
        Self::new(claim.into(), measured, Sense::AtMost, limit, unit)
    }

    /// Returns the two relations for a value that must lie in the range.
    pub(crate) fn within(
        claim: impl Into<String>,
        measured: f64,
        (low, high): (f64, f64),
        unit: &'static str,
    ) -> [Self; 2] {
        let claim = claim.into();
        [
            Self::at_least(claim.clone(), measured, low, unit),
            Self::at_most(claim, measured, high, unit),
        ]
    }

    /// Returns the two relations for values that must all lie in the range: `lowest` and `highest`
    /// are the extremes, with the numbers of groups per node at which they are reached.
    pub(crate) fn all_within(
        claim: &str,
        lowest: (f64, u32),
        highest: (f64, u32),
        (low, high): (f64, f64),
        unit: &'static str,
    ) -> [Self; 2] {
        [
            Self::at_least(claim, lowest.0, low, unit)
                .noted(format!("minimum at d = {}", lowest.1)),
            Self::at_most(claim, highest.0, high, unit)
                .noted(format!("maximum at d = {}", highest.1)),
        ]
    }

    #[must_use]
    pub(crate) fn noted(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// Creates a relation. NaN satisfies no limit, because it means that there was nothing to
    /// measure.
    fn new(claim: String, measured: f64, sense: Sense, limit: f64, unit: &'static str) -> Self {
        let margin = match sense {
            Sense::AtLeast => measured - limit,
            Sense::AtMost => limit - measured,
        };
        let holds = margin >= 0.0;
        let (min, max, note) = (measured, measured, String::new());
        Self { claim, measured, min, max, sense, limit, unit, holds, margin, note }
    }

    /// Combines the same relation of runs with different seeds. It is judged on the mean. The note
    /// is that of the run with the smallest margin among those with the same verdict.
    pub(crate) fn of_runs(runs: &[&Self]) -> Self {
        let of = |value: fn(&Self) -> f64| {
            Spread::of(&runs.iter().map(|run| value(run)).collect::<Vec<_>>())
        };
        let [first, ..] = runs else { unreachable!("a relation has at least one run") };
        let (measured, limit) = (of(|run| run.measured), of(|run| run.limit).mean);
        let mean = Self::new(first.claim.clone(), measured.mean, first.sense, limit, first.unit);
        let worst = runs
            .iter()
            .filter(|run| run.holds == mean.holds)
            .min_by(|a, b| least_first(&a.margin, &b.margin));
        let note = worst.map_or_else(String::new, |run| run.note.clone());
        Self { min: measured.min, max: measured.max, note, ..mean }
    }
}

/// Orders values like [`f64::total_cmp`], but NaN of either sign before every number.
///
/// NaN stands for a run without a result, which is the worst case of a claim. With this order
/// `min_by` returns NaN if any value is NaN, so that the relation does not hold. With
/// `f64::total_cmp`, `min_by` would ignore a positive NaN among numbers.
pub(crate) fn least_first(a: &f64, b: &f64) -> Ordering {
    b.is_nan().cmp(&a.is_nan()).then(a.total_cmp(b))
}

/// Orders values like [`f64::total_cmp`], but NaN of either sign after every number. With this
/// order `max_by` returns NaN if any value is NaN: see [`least_first`].
pub(crate) fn greatest_last(a: &f64, b: &f64) -> Ordering {
    a.is_nan().cmp(&b.is_nan()).then(a.total_cmp(b))
}

pub(crate) fn lowest<S: Default>(values: impl IntoIterator<Item = (f64, S)>) -> (f64, S) {
    let values = values.into_iter();
    values.min_by(|a, b| least_first(&a.0, &b.0)).unwrap_or((f64::NAN, S::default()))
}

pub(crate) fn highest<S: Default>(values: impl IntoIterator<Item = (f64, S)>) -> (f64, S) {
    let values = values.into_iter();
    values.max_by(|a, b| greatest_last(&a.0, &b.0)).unwrap_or((f64::NAN, S::default()))
}

/// A comparison in which Carom's value is better than the paper's.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Better {
    pub(crate) what: String,
    pub(crate) ours: f64,
    pub(crate) papers: f64,
    pub(crate) unit: &'static str,
}

impl Better {
    pub(crate) fn if_lower(
        what: impl Into<String>,
        ours: f64,
        papers: f64,
        unit: &'static str,
    ) -> Option<Self> {
        (ours < papers).then(|| Self { what: what.into(), ours, papers, unit })
    }

    pub(crate) fn if_higher(
        what: impl Into<String>,
        ours: f64,
        papers: f64,
        unit: &'static str,
    ) -> Option<Self> {
        (ours > papers).then(|| Self { what: what.into(), ours, papers, unit })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_margin_is_positive_on_the_right_side_of_the_limit() {
        let relation = Relation::at_least("recovered", 98.5, 97.0, "%");
        assert!(relation.holds && (relation.margin - 1.5).abs() < 1e-9);
        let relation = Relation::at_most("delay", 30.0, 25.0, "ms").noted("at d = 64");
        assert!(!relation.holds && (relation.margin + 5.0).abs() < 1e-9);
        assert!(Relation::at_most("at the limit", 5.0, 5.0, "").holds);
    }

    #[test]
    fn nothing_measured_holds_nothing() {
        assert!(!Relation::at_most("delay", f64::NAN, 25.0, "ms").holds);
        assert!(!Relation::at_least("delay", f64::NAN, 25.0, "ms").holds);
    }

    #[test]
    fn extremes_of_several_values_are_nan_if_one_of_them_is() {
        for nan in [f64::NAN, -f64::NAN] {
            for values in [[nan, 3.0, 1.0], [3.0, nan, 1.0], [3.0, 1.0, nan]] {
                let least = values.into_iter().min_by(least_first).expect("there are values");
                assert!(!Relation::at_least("throughput", least, 0.5, "%").holds, "{values:?}");
                let most = values.into_iter().max_by(greatest_last).expect("there are values");
                assert!(!Relation::at_most("delay", most, 5.0, "ms").holds, "{values:?}");
            }
        }
        assert_eq!([3.0, -1.0, 2.0].into_iter().min_by(least_first), Some(-1.0));
        assert_eq!([2.0, 3.0, -1.0].into_iter().max_by(greatest_last), Some(3.0));
    }

    #[test]
    fn better_is_told_only_where_it_is() {
        assert!(Better::if_lower("delay", 8.0, 25.0, "ms").is_some());
        assert!(Better::if_higher("recovered", 97.0, 97.5, "%").is_none());
    }
}

use super::ratios::{self, Ratio};
use super::results::Report;

/// The ratios of two reports of the same rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Number of ratios that either report has, of rows that both have.
    pub ratios: usize,
    /// A line for each ratio that differs too much, or that one report lacks.
    pub differences: Vec<String>,
}

impl Comparison {
    /// Compares the ratios of two reports. Two ratios differ if the larger one exceeds the smaller
    /// one by more than `tolerance`, a share.
    pub fn of(first: &Report, second: &Report, tolerance: f64) -> Self {
        let rows: Vec<&str> =
            first.rows().into_iter().filter(|row| second.rows().contains(row)).collect();
        let ratios = |report| -> Vec<Ratio<'_>> {
            let all = ratios::all(report);
            all.into_iter().filter(|ratio| rows.contains(&ratio.row)).collect()
        };
        let (ours, theirs) = (ratios(first), ratios(second));
        let mut comparison = Self::default();
        for ratio in &ours {
            let other = theirs.iter().find(|other| other.is_same(ratio));
            comparison.add(ratio, difference(Some(ratio), other, tolerance));
        }
        for ratio in theirs.iter().filter(|ratio| !ours.iter().any(|other| other.is_same(ratio))) {
            comparison.add(ratio, difference(None, Some(ratio), tolerance));
        }
        comparison
    }

    fn add(&mut self, ratio: &Ratio<'_>, difference: Option<String>) {
        let Ratio { row, system, metric, reference, .. } = ratio;
        self.ratios += 1;
        self.differences.extend(difference.map(|difference| {
            format!("{row}, {system}, {} to {reference}: {difference}", metric.name())
        }));
    }
}

/// Returns both ratios and their difference if it exceeds `tolerance`.
fn difference(
    first: Option<&Ratio<'_>>,
    second: Option<&Ratio<'_>>,
    tolerance: f64,
) -> Option<String> {
    let text = |ratio: Option<&Ratio<'_>>| ratio.map_or("none".to_owned(), Ratio::to_string);
    let both = format!("{} and {}", text(first), text(second));
    let (Some(first), Some(second)) = (first, second) else { return Some(both) };
    let excess = first.value.max(second.value) / first.value.min(second.value) - 1.0;
    (excess > tolerance).then(|| format!("{both}, {:.0} %", 100.0 * excess))
}

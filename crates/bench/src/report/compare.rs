use super::ratios::{self, Ratio, Reference, TOLERANCE};
use super::results::Report;

/// The ratios of two reports of the same rows. The ratio to a best peer is compared with the ratio
/// to the same peer in the other report, which may have another best one. A ratio of a single turn
/// of several is not compared, because it has no spread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Number of ratios that either report has.
    pub ratios: usize,
    /// Number of these ratios whose turns disagree in either report, so that their ranges are
    /// compared instead of their medians.
    pub unsteady: usize,
    /// Number of ratios that are not compared, because a report has them from one turn only.
    pub left_out: usize,
    /// A line for each ratio that differs too much, or that one report lacks, and for each row that
    /// one report lacks.
    pub differences: Vec<String>,
}

impl Comparison {
    /// Largest difference of two ratios that is not reported, as a share: the larger one exceeds
    /// the smaller one by this part of it.
    pub const TOLERANCE: f64 = TOLERANCE;

    /// Compares the ratios of two reports.
    pub fn of(first: &Report, second: &Report) -> Self {
        let mut comparison = Self::default();
        comparison.add_rows(first, second, "second");
        comparison.add_rows(second, first, "first");
        let (ours, theirs) = (ratios_of_rows(first, second), ratios_of_rows(second, first));
        for ratio in &ours {
            let same = theirs.iter().find(|other| other.is_same(ratio)).cloned();
            let same = same.or_else(|| ratios::to_same_peer(second, ratio));
            comparison.add(ratio, Some(ratio), same.as_ref());
        }
        for ratio in theirs.iter().filter(|ratio| !ours.iter().any(|other| other.is_same(ratio))) {
            let same = ratios::to_same_peer(first, ratio);
            comparison.add(ratio, same.as_ref(), Some(ratio));
        }
        comparison
    }

    /// Adds the rows that the other report lacks.
    fn add_rows(&mut self, report: &Report, other: &Report, name: &str) {
        let lacking = report.rows().into_iter().filter(|row| !other.rows().contains(row));
        self.differences.extend(lacking.map(|row| format!("{row}: not in the {name} report")));
    }

    /// Adds a ratio of the same systems in both reports. `None` is one that a report lacks.
    fn add(&mut self, ratio: &Ratio<'_>, first: Option<&Ratio<'_>>, second: Option<&Ratio<'_>>) {
        let both = || first.into_iter().chain(second);
        // A peer that is measured once may fail that time.
        let may_lack = ratio.reference == Reference::BestPeer;
        let is_left_out = first.is_some() == second.is_some() || may_lack;
        if is_left_out && both().any(|ratio| ratio.is_unrepeated) {
            self.left_out += 1;
            return;
        }
        self.ratios += 1;
        self.unsteady += usize::from(both().any(|ratio| !ratio.is_steady()));
        let text = |ratio: Option<&Ratio<'_>>| ratio.map_or("none".to_owned(), Ratio::to_string);
        let texts = format!("{} and {}", text(first), text(second));
        let difference = match first.zip(second).map(|(first, second)| first.difference(second)) {
            None => texts,
            Some(share) if share > TOLERANCE => format!("{texts}, {:.0} %", 100.0 * share),
            Some(_) => return,
        };
        let Ratio { row, system, metric, reference, .. } = ratio;
        let line = format!("{row}, {system}, {} to {reference}: {difference}", metric.name());
        self.differences.push(line);
    }
}

/// Returns the ratios of the rows that both reports have.
fn ratios_of_rows<'a>(report: &'a Report, other: &Report) -> Vec<Ratio<'a>> {
    let (mut ratios, rows) = (ratios::all(report), other.rows());
    ratios.retain(|ratio| rows.contains(&ratio.row));
    ratios
}

//! What must hold, and by how much it does.

use serde::Serialize;

/// A relation between a measured value and a limit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Relation {
    /// What must hold, in words.
    pub claim: String,
    /// What was measured, where it is worst.
    pub measured: f64,
    /// On which side of the limit it must be.
    pub sense: Sense,
    /// The limit.
    pub limit: f64,
    /// Unit of measured value, limit and margin.
    pub unit: &'static str,
    /// Whether it holds.
    pub holds: bool,
    /// How far the measured value is on the right side of the limit; negative if on the wrong one.
    pub margin: f64,
    /// Where it is worst, and whatever explains it; empty if there is nothing to say.
    pub note: String,
}

/// On which side of a limit a value must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Sense {
    /// At or above the limit.
    AtLeast,
    /// At or below the limit.
    AtMost,
}

impl Relation {
    /// `measured` must be at or above `limit`.
    pub fn at_least(
        claim: impl Into<String>,
        measured: f64,
        limit: f64,
        unit: &'static str,
    ) -> Self {
        Self::new(claim.into(), measured, Sense::AtLeast, limit, unit)
    }

    /// `measured` must be at or below `limit`.
    pub fn at_most(
        claim: impl Into<String>,
        measured: f64,
        limit: f64,
        unit: &'static str,
    ) -> Self {
        Self::new(claim.into(), measured, Sense::AtMost, limit, unit)
    }

    /// The same with where it is worst, or why it is so.
    #[must_use]
    pub fn noted(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// The same with the reason why it does not hold, if it does not.
    #[must_use]
    pub fn because(self, why_not: &str) -> Self {
        if self.holds { self } else { self.noted(why_not) }
    }

    /// A value that is no number holds nothing: there was nothing to measure.
    fn new(claim: String, measured: f64, sense: Sense, limit: f64, unit: &'static str) -> Self {
        let margin = match sense {
            Sense::AtLeast => measured - limit,
            Sense::AtMost => limit - measured,
        };
        let holds = margin >= 0.0;
        Self { claim, measured, sense, limit, unit, holds, margin, note: String::new() }
    }
}

/// A place where ours is better than the paper.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Better {
    /// What is compared.
    pub what: String,
    /// Ours.
    pub ours: f64,
    /// The paper's.
    pub papers: f64,
    /// Unit of both.
    pub unit: &'static str,
}

impl Better {
    /// `ours` beside `papers`, if ours is lower.
    pub fn if_lower(
        what: impl Into<String>,
        ours: f64,
        papers: f64,
        unit: &'static str,
    ) -> Option<Self> {
        (ours < papers).then(|| Self { what: what.into(), ours, papers, unit })
    }

    /// `ours` beside `papers`, if ours is higher.
    pub fn if_higher(
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
    fn better_is_told_only_where_it_is() {
        assert!(Better::if_lower("delay", 8.0, 25.0, "ms").is_some());
        assert!(Better::if_higher("recovered", 97.0, 97.5, "%").is_none());
    }
}

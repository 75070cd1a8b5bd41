//! Figures as data: axes and series, independent of the drawing backend.

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Figure {
    /// Name of the figure, unique in the experiment. Plans assign the paper's points to it by name.
    pub(crate) name: &'static str,
    pub(crate) title: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) series: Vec<Series>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Axis {
    /// Measured quantity, with its unit.
    pub(crate) label: String,
    pub(crate) scale: Scale,
    /// Ends of the axis, or `None` to fit the points.
    pub(crate) range: Option<(f64, f64)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scale {
    Linear,
    Log(f64),
}

/// A series of points that are drawn alike, with one entry in the legend.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Series {
    pub(crate) label: String,
    pub(crate) kind: Kind,
    pub(crate) shape: Shape,
    /// The points (x, y), in the order in which they are joined.
    pub(crate) points: Vec<(f64, f64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Ours,
    Papers,
    /// Computed by an analysis.
    Bound,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Shape {
    /// Joined by lines, with a marker at each point.
    Line,
    /// Joined by lines without markers, for curves of many points.
    Curve,
    /// Bars of this width, whose left edges are at x.
    Bars(f64),
}

impl Axis {
    pub(crate) fn linear(label: &str) -> Self {
        Self { label: label.to_owned(), scale: Scale::Linear, range: None }
    }

    pub(crate) fn log(label: &str, base: f64) -> Self {
        Self { label: label.to_owned(), scale: Scale::Log(base), range: None }
    }

    #[must_use]
    pub(crate) fn spanning(mut self, first: f64, last: f64) -> Self {
        self.range = Some((first, last));
        self
    }
}

impl Figure {
    pub(crate) fn new(name: &'static str, title: impl Into<String>, x: Axis, y: Axis) -> Self {
        Self { name, title: title.into(), x, y, series: Vec::new() }
    }

    #[must_use]
    pub(crate) fn with(
        mut self,
        label: impl Into<String>,
        kind: Kind,
        shape: Shape,
        points: Vec<(f64, f64)>,
    ) -> Self {
        self.series.push(Series { label: label.into(), kind, shape, points });
        self
    }

    #[must_use]
    pub(crate) fn ours(self, label: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        self.with(label, Kind::Ours, Shape::Line, points)
    }
}

//! Figures as data: axes and series, independent of the drawing backend.

/// A chart: its axes and series.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Name of the figure, unique in the experiment. Plans assign the paper's points to it by name.
    pub name: &'static str,
    /// Caption above the chart.
    pub title: String,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// Series in the order of the legend.
    pub series: Vec<Series>,
}

/// An axis of a figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// Measured quantity, with its unit.
    pub label: String,
    /// Scale of the values.
    pub scale: Scale,
    /// Ends of the axis, or `None` to fit the points.
    pub range: Option<(f64, f64)>,
}

/// The scale of an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scale {
    /// Equal distances for equal differences.
    Linear,
    /// Equal distances for equal ratios, with ticks at powers of the base.
    Log(f64),
}

/// A series of points that are drawn alike, with one entry in the legend.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Text of the legend.
    pub label: String,
    /// Origin of the points.
    pub kind: Kind,
    /// Form in which the points are drawn.
    pub shape: Shape,
    /// The points (x, y), in the order in which they are joined.
    pub points: Vec<(f64, f64)>,
    /// Smallest and largest y of the runs at each point. Empty if the runs do not differ.
    pub ranges: Vec<(f64, f64)>,
}

/// The origin of a series, which selects its colors and lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Measured here.
    Ours,
    /// Reported by a paper.
    Papers,
    /// Computed by an analysis.
    Bound,
}

/// The form of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// Joined by lines, with a marker at each point.
    Line,
    /// Joined by lines without markers, for curves of many points.
    Curve,
    /// Bars of this width, whose left edges are at x.
    Bars(f64),
}

impl Axis {
    /// Creates a linear axis that fits the points.
    pub fn linear(label: &str) -> Self {
        Self { label: label.to_owned(), scale: Scale::Linear, range: None }
    }

    /// Creates a logarithmic axis that fits the points.
    pub fn log(label: &str, base: f64) -> Self {
        Self { label: label.to_owned(), scale: Scale::Log(base), range: None }
    }

    /// Sets the ends of the axis.
    #[must_use]
    pub fn spanning(mut self, first: f64, last: f64) -> Self {
        self.range = Some((first, last));
        self
    }
}

impl Figure {
    /// Creates a figure without series.
    pub fn new(name: &'static str, title: impl Into<String>, x: Axis, y: Axis) -> Self {
        Self { name, title: title.into(), x, y, series: Vec::new() }
    }

    /// Adds a series.
    #[must_use]
    pub fn with(
        mut self,
        label: impl Into<String>,
        kind: Kind,
        shape: Shape,
        points: Vec<(f64, f64)>,
    ) -> Self {
        self.series.push(Series { label: label.into(), kind, shape, points, ranges: Vec::new() });
        self
    }

    /// Adds measured points, joined by lines.
    #[must_use]
    pub fn ours(self, label: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        self.with(label, Kind::Ours, Shape::Line, points)
    }
}

//! Figures as data: axes and series. How they are drawn is another matter.

/// One figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Its name among the figures of the experiment; plans put the paper's points to it by this.
    pub name: &'static str,
    /// What it shows.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// What is drawn, in order.
    pub series: Vec<Series>,
}

/// An axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// What it measures, with the unit.
    pub label: String,
    /// How it is divided.
    pub scale: Scale,
    /// Its ends; `None` to fit the points.
    pub range: Option<(f64, f64)>,
}

/// How an axis is divided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scale {
    /// Evenly.
    Linear,
    /// By powers of this base.
    Log(f64),
}

/// Points that belong together.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// What they are.
    pub label: String,
    /// Where they come from.
    pub kind: Kind,
    /// How they are drawn.
    pub shape: Shape,
    /// The points, x first, in the order in which they are joined.
    pub points: Vec<(f64, f64)>,
}

/// Where points come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// We have measured them.
    Ours,
    /// The paper reports them.
    Papers,
    /// An analysis says so.
    Bound,
}

/// How points are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// Joined, with a marker at each.
    Line,
    /// Joined, without markers: for curves of many points.
    Curve,
    /// Bars of this width that begin at x.
    Bars(f64),
}

impl Axis {
    /// An evenly divided axis that fits its points.
    pub fn linear(label: &str) -> Self {
        Self { label: label.to_owned(), scale: Scale::Linear, range: None }
    }

    /// An axis divided by powers of `base`.
    pub fn log(label: &str, base: f64) -> Self {
        Self { label: label.to_owned(), scale: Scale::Log(base), range: None }
    }

    /// The same from `first` to `last`.
    #[must_use]
    pub fn spanning(mut self, first: f64, last: f64) -> Self {
        self.range = Some((first, last));
        self
    }
}

impl Figure {
    /// A figure without series.
    pub fn new(name: &'static str, title: impl Into<String>, x: Axis, y: Axis) -> Self {
        Self { name, title: title.into(), x, y, series: Vec::new() }
    }

    /// The same with one series more.
    #[must_use]
    pub fn with(
        mut self,
        label: impl Into<String>,
        kind: Kind,
        shape: Shape,
        points: Vec<(f64, f64)>,
    ) -> Self {
        self.series.push(Series { label: label.into(), kind, shape, points });
        self
    }

    /// The same with a line of ours.
    #[must_use]
    pub fn ours(self, label: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        self.with(label, Kind::Ours, Shape::Line, points)
    }
}

//! Figures as SVG, one below the other. The viewer lays out the text, and no font metrics are read,
//! so the same points give the same bytes on every machine.

use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::element::DashedPathElement;
use plotters::prelude::*;

use crate::figure::{Axis, Figure, Kind, Scale, Series, Shape};
use crate::number::significant;

struct Panel<'a, 'b>(&'a DrawingArea<SVGBackend<'b>, Shift>);

/// Draws figures below each other and returns the SVG. Returns an empty string for no figures.
pub fn draw(figures: &[Figure]) -> String {
    let mut svg = String::new();
    if figures.is_empty() {
        return svg;
    }
    {
        let height = HEIGHT * u32::try_from(figures.len()).expect("figures are few");
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        area.fill(&WHITE).expect(STRING);
        for (panel, figure) in area.split_evenly((figures.len(), 1)).iter().zip(figures) {
            Panel(panel).draw(figure);
        }
        area.present().expect(STRING);
    }
    svg
}

impl Panel<'_, '_> {
    fn draw(&self, figure: &Figure) {
        let points = || figure.series.iter().flat_map(|series| series.points.iter().copied());
        let ranges = || figure.series.iter().flat_map(|series| series.ranges.iter());
        let range_ends = || ranges().flat_map(|(min, max)| [*min, *max]);
        let bar_ends = figure.series.iter().filter_map(|series| match series.shape {
            Shape::Bars(width) => Some(series.points.last()?.0 + width),
            Shape::Line | Shape::Curve => None,
        });
        let has_bars = figure.series.iter().any(|series| matches!(series.shape, Shape::Bars(_)));
        let (x0, x1) = ends(&figure.x, points().map(|(x, _)| x).chain(bar_ends));
        let (y0, y1) = ends(
            &figure.y,
            points().map(|(_, y)| y).chain(range_ends()).chain(has_bars.then_some(0.0)),
        );
        match (figure.x.scale, figure.y.scale) {
            (Scale::Linear, Scale::Linear) => self.chart(figure, x0..x1, y0..y1),
            (Scale::Log(x), Scale::Linear) => {
                self.chart(figure, (x0..x1).log_scale().base(x), y0..y1);
            }
            (Scale::Linear, Scale::Log(y)) => {
                self.chart(figure, x0..x1, (y0..y1).log_scale().base(y));
            }
            (Scale::Log(x), Scale::Log(y)) => {
                let (x, y) = ((x0..x1).log_scale().base(x), (y0..y1).log_scale().base(y));
                self.chart(figure, x, y);
            }
        }
    }

    fn chart<X, Y>(&self, figure: &Figure, x: X, y: Y)
    where
        X: AsRangedCoord<Value = f64>,
        Y: AsRangedCoord<Value = f64>,
        X::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64> + 'static,
        Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64> + 'static,
    {
        let mut chart = ChartBuilder::on(self.0)
            .caption(&figure.title, (FONT, 17))
            .margin(12)
            .x_label_area_size(48)
            .y_label_area_size(66)
            .build_cartesian_2d(x, y)
            .expect(STRING);
        chart
            .configure_mesh()
            .x_desc(&figure.x.label)
            .y_desc(&figure.y.label)
            .x_label_formatter(&|value| significant(*value))
            .y_label_formatter(&|value| significant(*value))
            .x_labels(12)
            .y_labels(8)
            .light_line_style(RGBColor(244, 244, 244))
            .bold_line_style(RGBColor(222, 222, 222))
            .label_style((FONT, 13))
            .axis_desc_style((FONT, 14))
            .draw()
            .expect(STRING);
        for (number, series) in figure.series.iter().enumerate() {
            draw_series(&mut chart, series, colour(figure, number));
            draw_ranges(&mut chart, series, colour(figure, number));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerRight)
            .background_style(WHITE.mix(0.85))
            .border_style(RGBColor(190, 190, 190))
            .label_font((FONT, 13))
            .draw()
            .expect(STRING);
    }
}

fn draw_series<X, Y>(
    chart: &mut ChartContext<'_, SVGBackend<'_>, Cartesian2d<X, Y>>,
    series: &Series,
    colour: RGBColor,
) where
    X: Ranged<ValueType = f64> + 'static,
    Y: Ranged<ValueType = f64> + 'static,
{
    let points = series.points.clone();
    let style = ShapeStyle::from(colour).stroke_width(2);
    if let Shape::Bars(width) = series.shape {
        let bars = points
            .into_iter()
            .map(|(x, y)| Rectangle::new([(x, 0.0), (x + width, y)], colour.mix(0.75).filled()));
        let drawn = chart.draw_series(bars).expect(STRING);
        drawn.label(&series.label).legend(move |(x, y)| {
            Rectangle::new([(x, y - 5), (x + 18, y + 5)], colour.mix(0.75).filled())
        });
        return;
    }
    match series.kind {
        Kind::Ours => {
            let line = LineSeries::new(points.iter().copied(), style);
            let drawn = chart.draw_series(line).expect(STRING);
            drawn
                .label(&series.label)
                .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], style));
        }
        Kind::Papers | Kind::Bound => {
            let (dash, gap) = if series.kind == Kind::Papers { (9, 6) } else { (2, 4) };
            let line = DashedLineSeries::new(points.clone(), dash, gap, style);
            let drawn = chart.draw_series(line).expect(STRING);
            drawn.label(&series.label).legend(move |(x, y)| {
                let line = [(x, y), (x + 18, y)];
                DashedPathElement::new(line, dash, gap, style)
            });
        }
    }
    if series.shape == Shape::Line {
        draw_markers(chart, series, colour);
    }
}

/// Draws the smallest and largest values of several runs: error bars at the points of a line, and
/// thin lines beside a curve.
fn draw_ranges<X, Y>(
    chart: &mut ChartContext<'_, SVGBackend<'_>, Cartesian2d<X, Y>>,
    series: &Series,
    colour: RGBColor,
) where
    X: Ranged<ValueType = f64> + 'static,
    Y: Ranged<ValueType = f64> + 'static,
{
    // A smallest value of 0 is below a logarithmic axis.
    let bottom = chart.y_range().start;
    let both = || {
        let ranges = series.ranges.iter().map(|(min, max)| (min.max(bottom), max.max(bottom)));
        series.points.iter().map(|(x, y)| (*x, y.max(bottom))).zip(ranges)
    };
    let has_range = |(_, (min, max)): &((f64, f64), (f64, f64))| max > min;
    let thin = ShapeStyle::from(colour.mix(0.5)).stroke_width(1);
    match series.shape {
        Shape::Line | Shape::Bars(_) => {
            let middle = if let Shape::Bars(width) = series.shape { width / 2.0 } else { 0.0 };
            let bars = both().filter(has_range).map(|((x, y), (min, max))| {
                ErrorBar::new_vertical(x + middle, min, y, max, colour.stroke_width(1), 9)
            });
            chart.draw_series(bars).expect(STRING);
        }
        Shape::Curve => {
            for end in [|range: (f64, f64)| range.0, |range: (f64, f64)| range.1] {
                let line = both().map(|((x, _), range)| (x, end(range)));
                chart.draw_series(LineSeries::new(line, thin)).expect(STRING);
            }
        }
    }
}

/// Draws Carom's points as discs and the paper's as triangles, so that they differ without color.
fn draw_markers<X, Y>(
    chart: &mut ChartContext<'_, SVGBackend<'_>, Cartesian2d<X, Y>>,
    series: &Series,
    colour: RGBColor,
) where
    X: Ranged<ValueType = f64> + 'static,
    Y: Ranged<ValueType = f64> + 'static,
{
    let points = series.points.iter().copied();
    match series.kind {
        Kind::Ours => {
            let discs = points.map(|point| Circle::new(point, 4, colour.filled()));
            chart.draw_series(discs).expect(STRING);
        }
        Kind::Papers => {
            let triangles = points.map(|point| TriangleMarker::new(point, 6, colour.filled()));
            chart.draw_series(triangles).expect(STRING);
        }
        Kind::Bound => {}
    }
}

/// Returns the color of a series. Carom's series have the colors of Okabe and Ito, which are
/// distinguishable with color blindness. The paper's first series and all bounds are gray.
fn colour(figure: &Figure, number: usize) -> RGBColor {
    let kind = figure.series[number].kind;
    let before = figure.series[..number].iter().filter(|series| series.kind == kind).count();
    match kind {
        Kind::Ours => OURS[before % OURS.len()],
        Kind::Papers => PAPERS[before % PAPERS.len()],
        Kind::Bound => BOUNDS[before % BOUNDS.len()],
    }
}

/// Returns the range of an axis, or, if the axis has none, the range of the values with a margin.
fn ends(axis: &Axis, values: impl Iterator<Item = f64>) -> (f64, f64) {
    if let Some(range) = axis.range {
        return range;
    }
    let is_log = axis.scale != Scale::Linear;
    let usable = values.filter(|value| value.is_finite() && (!is_log || *value > 0.0));
    let (low, high) = usable.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(value), high.max(value))
    });
    if low > high {
        return (1.0, 2.0);
    }
    if is_log {
        return (low / 1.15, high * 1.15);
    }
    let room = if high > low { (high - low) * 0.06 } else { high.abs().max(1.0) * 0.06 };
    let bottom = if low >= 0.0 && low <= high * 0.5 { 0.0 } else { low - room };
    (bottom, high + room)
}

const WIDTH: u32 = 860;
const HEIGHT: u32 = 420;
const FONT: &str = "sans-serif";
const STRING: &str = "writing to a string cannot fail";
const OURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(120, 120, 120),
    RGBColor(0, 0, 0),
];
const PAPERS: [RGBColor; 3] = [RGBColor(70, 70, 70), RGBColor(150, 110, 0), RGBColor(120, 60, 120)];
const BOUNDS: [RGBColor; 2] = [RGBColor(110, 110, 110), RGBColor(160, 160, 160)];

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(x: Axis, y: Axis) -> Figure {
        let points = vec![(2.0, 97.5), (1024.0, 98.5)];
        Figure::new("f", "A title", x, y)
            .ours("ours", points.clone())
            .with("theirs", Kind::Papers, Shape::Line, points)
            .with("bars", Kind::Ours, Shape::Bars(1.0), vec![(2.0, 10.0), (3.0, 5.0)])
    }

    #[test]
    fn every_figure_has_its_labels_whatever_its_axes_are() {
        let x = [Axis::linear("groups"), Axis::log("groups", 2.0)];
        let y = [Axis::linear("percent"), Axis::log("percent", 10.0).spanning(1.0, 100.0)];
        for x in &x {
            for y in &y {
                let svg = draw(&[figure(x.clone(), y.clone()), figure(x.clone(), y.clone())]);
                for text in ["A title", "groups", "percent", "ours", "theirs", "bars"] {
                    assert!(svg.matches(text).count() >= 2, "{text} is missing");
                }
                assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            }
        }
    }

    #[test]
    fn figures_without_points_are_drawn_empty() {
        let empty = Figure::new("f", "Nothing", Axis::linear("x"), Axis::log("y", 10.0));
        assert!(draw(&[empty]).contains("Nothing"));
        assert_eq!(draw(&[]), "");
    }

    #[test]
    fn the_same_points_are_drawn_with_the_same_bytes() {
        let figure = || figure(Axis::log("d", 2.0), Axis::linear("y"));
        assert_eq!(draw(&[figure()]), draw(&[figure()]));
    }
}

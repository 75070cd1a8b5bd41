/// The straight line that fits some points best (least squares).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Line {
    pub(crate) slope: f64,
    /// Largest vertical distance of a point from the line.
    pub(crate) off: f64,
}

impl Line {
    /// Fits a line. Its values are NaN if there are fewer than two different x, or if a value is
    /// NaN.
    pub(crate) fn through(points: impl Iterator<Item = (f64, f64)>) -> Self {
        let points: Vec<(f64, f64)> = points.collect();
        let count = points.len() as f64;
        let mean_x = points.iter().map(|(x, _)| x).sum::<f64>() / count;
        let mean_y = points.iter().map(|(_, y)| y).sum::<f64>() / count;
        let both = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum::<f64>();
        let slope = both / points.iter().map(|(x, _)| (x - mean_x) * (x - mean_x)).sum::<f64>();
        let off = points.iter().map(|(x, y)| (y - mean_y - slope * (x - mean_x)).abs());
        let off = if slope.is_finite() { off.fold(0.0, f64::max) } else { f64::NAN };
        Self { slope, off }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_fits_the_points_and_reports_the_farthest() {
        let line = Line::through([(1.0, 2.0), (2.0, 4.0), (3.0, 6.0)].into_iter());
        assert!((line.slope - 2.0).abs() < 1e-9 && line.off < 1e-9, "{line:?}");
        let line = Line::through([(0.0, 0.0), (1.0, 3.0), (2.0, 0.0)].into_iter());
        assert!(line.slope.abs() < 1e-9 && (line.off - 2.0).abs() < 1e-9, "{line:?}");
    }

    #[test]
    fn nothing_to_fit_is_not_a_line() {
        for points in [vec![], vec![(1.0, 1.0)], vec![(1.0, f64::NAN), (2.0, 1.0)]] {
            let line = Line::through(points.into_iter());
            assert!(line.slope.is_nan() && line.off.is_nan(), "{line:?}");
        }
    }
}

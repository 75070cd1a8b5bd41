use carom_figures::{Axis, Figure, Kind as Series, Shape};

use super::metric::Metric;
use super::results::Report;
use super::runs::distinct;

/// Returns a chart for each metric that a comparison needs, with a bar for each system and row.
pub(super) fn figures(report: &Report) -> Vec<Figure> {
    let figures = CHARTS.iter().map(|metric| figure(report, *metric));
    figures.filter(|figure| !figure.series.is_empty()).collect()
}

fn figure(report: &Report, metric: Metric) -> Figure {
    let rows = report.rows();
    let systems = rows.iter().flat_map(|row| report.systems(row)).map(|runs| runs.system());
    let systems = distinct(systems);
    let width = 0.8 / systems.len().max(1) as f64;
    let legend: Vec<String> =
        rows.iter().enumerate().map(|(index, row)| format!("{}: {row}", index + 1)).collect();
    let x = Axis::linear(&legend.join(", ")).spanning(0.5, rows.len() as f64 + 0.5);
    let y = Axis::linear(metric.unit());
    let mut figure = Figure::new(metric.name(), metric.name(), x, y);
    for (place, system) in systems.iter().enumerate() {
        let bars = rows.iter().enumerate().filter_map(|(index, row)| {
            let left = index as f64 + 0.6 + place as f64 * width;
            let runs = report.systems(row).into_iter().find(|runs| runs.system() == *system)?;
            Some((left, runs.median(metric)?.value))
        });
        let bars: Vec<(f64, f64)> = bars.collect();
        if !bars.is_empty() {
            figure = figure.with(*system, Series::Ours, Shape::Bars(width), bars);
        }
    }
    figure
}

const CHARTS: [Metric; 5] = [
    Metric::LatencyP50,
    Metric::LatencyP99,
    Metric::RecoveredP99,
    Metric::Cpu,
    Metric::GoodputSlowest,
];

//! Combination of the findings of runs with different seeds.

use crate::relation::{Better, Relation};
use crate::report::Findings;
use crate::table::{Cell, Spread, Table};
use carom_figures::{Figure, Series, Shape};

/// Combines the findings of several runs of one experiment, which have the same relations, figures
/// and columns in the same order.
pub(crate) fn combine(runs: Vec<Findings>) -> Findings {
    let tables: Vec<&Table> = runs.iter().map(|run| &run.table).collect();
    let measured: Option<Vec<&Table>> = runs.iter().map(|run| run.measured.as_ref()).collect();
    let figures: Vec<&[Figure]> = runs.iter().map(|run| &run.figures[..]).collect();
    let relations: Vec<&[Relation]> = runs.iter().map(|run| &run.relations[..]).collect();
    let better: Vec<&[Better]> = runs.iter().map(|run| &run.better[..]).collect();
    Findings {
        table: table(&tables),
        measured: measured.map(|tables| table(&tables)),
        figures: in_order(&figures).map(|of_runs| figure(&of_runs)).collect(),
        relations: in_order(&relations).map(|of_runs| Relation::of_runs(&of_runs)).collect(),
        better: in_every_run(&better),
        notes: runs.first().map_or_else(Vec::new, |run| run.notes.clone()),
    }
}

/// Returns the items at each place, one from each run.
fn in_order<'a, T>(runs: &'a [&'a [T]]) -> impl Iterator<Item = Vec<&'a T>> {
    let count = runs.first().map_or(0, |run| run.len());
    assert!(runs.iter().all(|run| run.len() == count), "all runs are evaluated alike");
    (0..count).map(move |place| runs.iter().map(|run| &run[place]).collect())
}

/// Combines the rows at the same place, which must have the same keys in all runs.
fn table(runs: &[&Table]) -> Table {
    let Some(first) = runs.first() else { return Table::default() };
    let keys = first.keys;
    let tables: Vec<&[Vec<Cell>]> = runs.iter().map(|run| &run.rows[..]).collect();
    let row = |rows: Vec<&Vec<Cell>>| {
        let [first, ..] = rows[..] else { unreachable!("a row has at least one run") };
        for row in &rows {
            assert_eq!(row[..keys], first[..keys], "a point has different keys in the runs");
        }
        let result = |column: usize| match &first[column] {
            Cell::Word(_) => first[column].clone(),
            _ => {
                let values = rows.iter().filter_map(|row| row[column].number());
                Cell::Spread(Spread::of(&values.collect::<Vec<f64>>()))
            }
        };
        first[..keys].iter().cloned().chain((keys..first.len()).map(result)).collect()
    };
    Table { columns: first.columns.clone(), keys, rows: in_order(&tables).map(row).collect() }
}

fn figure(runs: &[&Figure]) -> Figure {
    let [first, ..] = runs else { unreachable!("an experiment has at least one run") };
    let series = |series: &Series| {
        let same = runs.iter().filter_map(|run| {
            run.series
                .iter()
                .find(|other| (&other.label, other.kind) == (&series.label, series.kind))
        });
        combined(&same.collect::<Vec<_>>())
    };
    Figure { series: first.series.iter().map(series).collect(), ..(*first).clone() }
}

/// Combines one series of all runs, by the x of its points. A bar that a run does not have is 0.
fn combined(runs: &[&Series]) -> Series {
    let [first, ..] = runs else { unreachable!("the series is in the first run") };
    let is_bars = matches!(first.shape, Shape::Bars(_));
    let mut xs: Vec<f64> = first.points.iter().map(|(x, _)| *x).collect();
    if is_bars {
        xs = runs.iter().flat_map(|run| run.points.iter().map(|(x, _)| *x)).collect();
        xs.sort_by(f64::total_cmp);
        xs.dedup();
    }
    let mut points = Vec::new();
    let mut ranges = Vec::new();
    for x in xs {
        let y_of =
            |run: &&Series| run.points.iter().find(|point| point.0 == x).map(|point| point.1);
        let values = runs.iter().filter_map(|run| y_of(run).or(is_bars.then_some(0.0)));
        let Spread { mean, min, max } = Spread::of(&values.collect::<Vec<f64>>());
        points.push((x, mean));
        ranges.push((min, max));
    }
    let varies = ranges.iter().any(|(min, max)| min != max);
    Series { points, ranges: if varies { ranges } else { Vec::new() }, ..(*first).clone() }
}

/// Returns the comparisons in which every run is better than the paper, with the mean of the runs.
fn in_every_run(runs: &[&[Better]]) -> Vec<Better> {
    let Some(first) = runs.first() else { return Vec::new() };
    let of_all = |better: &Better| {
        let same = |run: &&[Better]| run.iter().find(|it| it.what == better.what).map(|it| it.ours);
        let ours: Option<Vec<f64>> = runs.iter().map(same).collect();
        Some(Better { ours: Spread::of(&ours?).mean, ..better.clone() })
    };
    first.iter().filter_map(of_all).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Rows;
    use carom_figures::Axis;

    fn run(recovered: f64, bars: &[(f64, f64)]) -> Findings {
        let table = Rows(&[(2_u64, recovered), (4_u64, recovered + 1.0)])
            .table(1, &[("d", |row| row.0.into()), ("recovered_percent", |row| row.1.into())]);
        let figure = Figure::new("f", "F", Axis::linear("x"), Axis::linear("y"))
            .ours("line", vec![(2.0, recovered)])
            .with("bars", carom_figures::Kind::Ours, Shape::Bars(1.0), bars.to_vec());
        Findings {
            table,
            figures: vec![figure],
            relations: vec![Relation::at_least("recovered", recovered, 97.0, "%")],
            better: Better::if_higher("recovered", recovered, 97.5, "%").into_iter().collect(),
            ..Findings::default()
        }
    }

    #[test]
    fn results_of_runs_become_mean_smallest_and_largest() {
        let findings =
            combine(vec![run(96.0, &[(0.0, 4.0)]), run(99.0, &[(0.0, 2.0), (1.0, 2.0)])]);
        assert_eq!(findings.table.rows[1][0], Cell::Count(4));
        let spread = Spread { mean: 98.5, min: 97.0, max: 100.0 };
        assert_eq!(findings.table.rows[1][1], Cell::Spread(spread));
        let [line, bars] = &findings.figures[0].series[..] else { panic!("two series") };
        assert_eq!((&line.points[..], &line.ranges[..]), (&[(2.0, 97.5)][..], &[(96.0, 99.0)][..]));
        assert_eq!(bars.points, [(0.0, 3.0), (1.0, 1.0)]);
        assert_eq!(bars.ranges, [(2.0, 4.0), (0.0, 2.0)]);
    }

    #[test]
    #[should_panic(expected = "a point has different keys in the runs")]
    fn points_with_different_keys_are_not_averaged() {
        let mut other = run(99.0, &[]);
        other.table.rows.swap(0, 1);
        combine(vec![run(96.0, &[]), other]);
    }

    #[test]
    fn relation_is_judged_on_the_mean_of_the_runs() {
        let relation = |values: &[f64]| {
            let runs = values.iter().map(|value| run(*value, &[])).collect();
            combine(runs).relations.swap_remove(0)
        };
        let held = relation(&[96.0, 99.0]);
        assert!(held.holds && held.measured == 97.5 && held.margin == 0.5, "{held:?}");
        assert_eq!((held.min, held.max), (96.0, 99.0));
        assert!(!relation(&[96.0, 97.5]).holds);
        assert!(!relation(&[99.0, f64::NAN]).holds, "a run without a result holds nothing");
    }

    #[test]
    fn better_than_the_paper_means_in_every_run() {
        let better =
            |values: &[f64]| combine(values.iter().map(|value| run(*value, &[])).collect()).better;
        assert_eq!(better(&[98.0, 99.0])[0].ours, 98.5);
        assert_eq!(better(&[97.0, 99.0]), []);
    }
}

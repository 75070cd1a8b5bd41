//! Tables as comma-separated values (RFC 4180). A result of several runs has three columns: the
//! mean, and the smallest and largest value with the suffixes `_min` and `_max`.

use carom_figures::significant;

use crate::table::{Cell, Spread, Table};

pub(crate) fn write(table: &Table) -> String {
    let has_spread =
        |column: usize| table.rows.iter().any(|row| matches!(row[column], Cell::Spread(_)));
    let mut names = Vec::new();
    for (place, name) in table.columns.iter().enumerate() {
        names.push((*name).to_owned());
        if has_spread(place) {
            names.extend([format!("{name}_min"), format!("{name}_max")]);
        }
    }
    let mut out = line(names.into_iter());
    for row in &table.rows {
        out += &line(row.iter().flat_map(|cell| {
            let ends = match cell {
                Cell::Spread(Spread { min, max, .. }) => vec![significant(*min), significant(*max)],
                _ => Vec::new(),
            };
            [quoted(&cell.text())].into_iter().chain(ends)
        }));
    }
    out
}

fn line(cells: impl Iterator<Item = String>) -> String {
    cells.collect::<Vec<_>>().join(",") + "\n"
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Rows;

    #[test]
    fn a_table_has_a_line_for_its_columns_and_one_for_each_row() {
        let table = Rows(&[(2_u64, 98.5, "burst, \"10\"")]).table(
            1,
            &[
                ("d", |row| row.0.into()),
                ("recovered_percent", |row| row.1.into()),
                ("loss", |row| row.2.into()),
            ],
        );
        assert_eq!(write(&table), "d,recovered_percent,loss\n2,98.5,\"burst, \"\"10\"\"\"\n");
    }

    #[test]
    fn a_result_of_several_runs_has_three_columns() {
        let table = Table {
            columns: vec!["d", "delay_ms"],
            keys: 1,
            rows: vec![vec![Cell::Count(2), Cell::Spread(Spread::of(&[4.0, 6.0, 8.0]))]],
        };
        assert_eq!(write(&table), "d,delay_ms,delay_ms_min,delay_ms_max\n2,6,4,8\n");
    }
}

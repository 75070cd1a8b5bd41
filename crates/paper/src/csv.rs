//! Tables as comma-separated values (RFC 4180).

use crate::table::Table;

/// Returns the table as CSV, with the column names in the first line.
pub(crate) fn write(table: &Table) -> String {
    let mut out = line(table.columns.iter().map(|column| (*column).to_owned()));
    for row in &table.rows {
        out += &line(row.iter().map(|cell| quoted(&cell.text())));
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

    #[test]
    fn a_table_has_a_line_for_its_columns_and_one_for_each_row() {
        let mut table = Table::new(&["d", "recovered_percent", "loss"]);
        table.push(vec![2_u64.into(), 98.5.into(), "burst, \"10\"".into()]);
        assert_eq!(write(&table), "d,recovered_percent,loss\n2,98.5,\"burst, \"\"10\"\"\"\n");
    }
}

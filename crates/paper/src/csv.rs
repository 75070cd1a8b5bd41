//! Tables as comma-separated values (RFC 4180).

use crate::table::Table;

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
    use crate::table::Rows;

    #[test]
    fn a_table_has_a_line_for_its_columns_and_one_for_each_row() {
        let table = Rows(&[(2_u64, 98.5, "burst, \"10\"")]).table(&[
            ("d", |row| row.0.into()),
            ("recovered_percent", |row| row.1.into()),
            ("loss", |row| row.2.into()),
        ]);
        assert_eq!(write(&table), "d,recovered_percent,loss\n2,98.5,\"burst, \"\"10\"\"\"\n");
    }
}

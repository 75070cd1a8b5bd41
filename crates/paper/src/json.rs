use serde_json::{Map, Value, json};

use crate::table::{Cell, Table};

pub(crate) fn points(table: &Table) -> Value {
    let row = |row: &Vec<Cell>| {
        let cells = table.columns.iter().zip(row);
        let cells = cells.map(|(column, cell)| ((*column).to_owned(), value(cell)));
        Value::Object(cells.collect::<Map<_, _>>())
    };
    table.rows.iter().map(row).collect()
}

/// Converts a cell. Numbers are rounded like in the CSV, so that both have the same values.
fn value(cell: &Cell) -> Value {
    match cell {
        Cell::Count(count) => json!(count),
        Cell::Number(_) => cell.text().parse::<f64>().map_or(Value::Null, |number| json!(number)),
        Cell::Word(word) => json!(word),
    }
}

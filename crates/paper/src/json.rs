//! Reports as JSON.

use serde_json::{Map, Value, json};

use crate::report::Report;
use crate::table::{Cell, Table};

/// Returns the report as JSON.
pub(crate) fn of(report: &Report) -> Value {
    let mut value = json!({
        "name": report.name(),
        "title": report.heading.title,
        "source": report.heading.source,
        "seed": report.seed,
        "quick": report.quick,
        "holds": report.holds(),
        "relations": report.relations,
        "better": report.better,
        "notes": report.notes,
        "points": points(&report.table),
    });
    if let (Some(measured), Some(object)) = (&report.measured, value.as_object_mut()) {
        object.insert("measured".to_owned(), points(measured));
    }
    value
}

fn points(table: &Table) -> Value {
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

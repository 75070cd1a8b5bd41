use serde_json::{Map, Value, json};

use carom_figures::significant;

use crate::table::{Cell, Spread, Table};

pub(crate) fn points(table: &Table) -> Value {
    let row = |row: &Vec<Cell>| {
        let cells = table.columns.iter().zip(row).flat_map(|(column, cell)| fields(column, cell));
        Value::Object(cells.collect::<Map<_, _>>())
    };
    table.rows.iter().map(row).collect()
}

/// Returns the fields of a cell. Numbers are rounded like in the CSV, so that both have the same
/// values.
fn fields(column: &str, cell: &Cell) -> Vec<(String, Value)> {
    let field = |suffix: &str, value: Value| (format!("{column}{suffix}"), value);
    match cell {
        Cell::Count(count) => vec![field("", json!(count))],
        Cell::Number(value) => vec![field("", number(*value))],
        Cell::Word(word) => vec![field("", json!(word))],
        Cell::Spread(Spread { mean, min, max }) => {
            vec![field("", number(*mean)), field("_min", number(*min)), field("_max", number(*max))]
        }
    }
}

fn number(value: f64) -> Value {
    significant(value).parse::<f64>().map_or(Value::Null, |number| json!(number))
}

//! Points of an experiment, as rows of named columns.

/// Rows of named columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// Names of the columns, which end with the unit.
    pub columns: Vec<&'static str>,
    /// Rows, each with one cell per column.
    pub rows: Vec<Vec<Cell>>,
}

/// Value in a table.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Integer.
    Count(u64),
    /// Number. It is written as an empty text if it is not finite.
    Number(f64),
    /// Word.
    Word(String),
}

impl Table {
    /// Returns a table without rows.
    pub fn new(columns: &[&'static str]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// Panics if the row does not have one cell per column.
    pub fn push(&mut self, row: Vec<Cell>) {
        assert_eq!(row.len(), self.columns.len(), "a row has a cell for every column");
        self.rows.push(row);
    }
}

impl From<u64> for Cell {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<f64> for Cell {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for Cell {
    fn from(word: &str) -> Self {
        Self::Word(word.to_owned())
    }
}

impl Cell {
    /// Returns the value as text. Numbers have six significant digits, the same on every machine.
    pub fn text(&self) -> String {
        match self {
            Self::Count(count) => count.to_string(),
            Self::Number(number) => significant(*number),
            Self::Word(word) => word.clone(),
        }
    }
}

/// Formats a number with six significant digits and no trailing zeros. Returns an empty string if
/// it is not finite.
pub(crate) fn significant(number: f64) -> String {
    if !number.is_finite() {
        return String::new();
    }
    if number == 0.0 {
        return "0".to_owned();
    }
    let rounded: f64 = format!("{number:.5e}").parse().expect("what was formatted is a number");
    rounded.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_with_six_digits_and_no_more() {
        assert_eq!(significant(98.123_456_789), "98.1235");
        assert_eq!(significant(0.000_123_456_78), "0.000123457");
        assert_eq!(significant(1_234_567.0), "1234570");
        assert_eq!(significant(5.0), "5");
        assert_eq!(significant(-0.0), "0");
        assert_eq!(significant(f64::NAN), "");
    }
}

use carom_figures::significant;

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Table {
    /// Names of the columns, which end with the unit.
    pub(crate) columns: Vec<&'static str>,
    pub(crate) rows: Vec<Vec<Cell>>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell {
    Count(u64),
    /// Number. It is written as an empty text if it is not finite.
    Number(f64),
    Word(String),
}

/// A column for the points `P`: its name, which ends with the unit, and the value of a point.
pub(crate) type Column<P> = (&'static str, fn(&P) -> Cell);

pub(crate) struct Rows<'a, P>(pub(crate) &'a [P]);

impl<P> Rows<'_, P> {
    pub(crate) fn table(&self, columns: &[Column<P>]) -> Table {
        let row = |point| columns.iter().map(|(_, value)| value(point)).collect();
        let names = columns.iter().map(|(name, _)| *name);
        Table { columns: names.collect(), rows: self.0.iter().map(row).collect() }
    }
}

impl From<u64> for Cell {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<u32> for Cell {
    fn from(count: u32) -> Self {
        Self::Count(count.into())
    }
}

impl From<f64> for Cell {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<String> for Cell {
    fn from(word: String) -> Self {
        Self::Word(word)
    }
}

impl From<&str> for Cell {
    fn from(word: &str) -> Self {
        Self::Word(word.to_owned())
    }
}

impl Cell {
    /// Returns the value as text. A `Number` is rounded to six significant digits.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Count(count) => count.to_string(),
            Self::Number(number) => significant(*number),
            Self::Word(word) => word.clone(),
        }
    }
}

use carom_figures::significant;

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Table {
    /// Names of the columns, which end with the unit.
    pub(crate) columns: Vec<&'static str>,
    /// Number of leading columns that identify a row. The other columns are results.
    pub(crate) keys: usize,
    pub(crate) rows: Vec<Vec<Cell>>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell {
    Count(u64),
    /// Number. It is written as an empty text if it is not finite.
    Number(f64),
    Word(String),
    /// A result of several runs.
    Spread(Spread),
}

/// The mean of a result over several runs, with its smallest and largest value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) mean: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

/// A column for the points `P`: its name, which ends with the unit, and the value of a point.
pub(crate) type Column<P> = (&'static str, fn(&P) -> Cell);

pub(crate) struct Rows<'a, P>(pub(crate) &'a [P]);

impl<P> Rows<'_, P> {
    /// Returns a table whose first `keys` columns identify a row.
    pub(crate) fn table(&self, keys: usize, columns: &[Column<P>]) -> Table {
        let row = |point| columns.iter().map(|(_, value)| value(point)).collect();
        let names = columns.iter().map(|(name, _)| *name);
        Table { columns: names.collect(), keys, rows: self.0.iter().map(row).collect() }
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
    /// Returns the value of a number or count.
    pub(crate) fn number(&self) -> Option<f64> {
        match self {
            Self::Count(count) => Some(*count as f64),
            Self::Number(number) => Some(*number),
            Self::Word(_) | Self::Spread(_) => None,
        }
    }

    /// Returns the value as text. A `Number` is rounded to six significant digits.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Count(count) => count.to_string(),
            Self::Number(number) => significant(*number),
            Self::Word(word) => word.clone(),
            Self::Spread(spread) => significant(spread.mean),
        }
    }
}

impl Spread {
    /// Returns the spread of the values. Without a value, or if one of them is NaN, all are NaN.
    pub(crate) fn of(values: &[f64]) -> Self {
        if values.is_empty() || values.iter().any(|value| value.is_nan()) {
            return Self { mean: f64::NAN, min: f64::NAN, max: f64::NAN };
        }
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let min = values.iter().copied().fold(f64::INFINITY, f64::min);
        let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        // The sum of equal values may be rounded.
        Self { mean: mean.clamp(min, max), min, max }
    }
}

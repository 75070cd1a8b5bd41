use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use carom_terminal::output;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) sent: u64,
    pub(crate) delivered: u64,
    pub(crate) losses_injected: u64,
    pub(crate) fec: u64,
    pub(crate) nak: u64,
}

/// A table of the changes in each second. On a terminal, the row of the current second is redrawn
/// several times. Elsewhere, each row is printed once, at the end of its second.
pub(crate) struct LiveTable {
    is_terminal: bool,
    started: Instant,
    next_draw: Instant,
    row: u32,
    before: Totals,
}

impl LiveTable {
    pub(crate) fn begin(now: Instant) -> Self {
        output::say(format_args!("{HEADER}"));
        let is_terminal = std::io::stderr().is_terminal();
        let next_draw = now + if is_terminal { REDRAW } else { SECOND };
        Self { is_terminal, started: now, next_draw, row: 1, before: Totals::default() }
    }

    pub(crate) fn is_due(&self, now: Instant) -> bool {
        now >= self.next_draw
    }

    /// Draws the current row. Returns `true` if its second is over, so that the next row begins.
    pub(crate) fn draw(&mut self, now: Instant, totals: Totals, p99_ms: Option<f64>) -> bool {
        let over = now >= self.started + SECOND * self.row;
        if over || self.is_terminal {
            self.print(&row(self.row, self.before, totals, p99_ms), over);
        }
        if over {
            self.before = totals;
            self.row += 1;
        }
        let row_ends = self.started + SECOND * self.row;
        self.next_draw = if self.is_terminal { row_ends.min(now + REDRAW) } else { row_ends };
        over
    }

    pub(crate) fn end(&mut self, totals: Totals, p99_ms: Option<f64>) {
        self.print(&row(self.row, self.before, totals, p99_ms), true);
    }

    fn print(&self, row: &str, over: bool) {
        let start = if self.is_terminal { CLEAR_LINE } else { "" };
        let end = if over { "\n" } else { "" };
        output::draw(format_args!("{start}{row}{end}"));
    }
}

fn row(number: u32, before: Totals, now: Totals, p99_ms: Option<f64>) -> String {
    let p99 = p99_ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1} ms"));
    format!(
        "{number:>6} {:>8} {:>10} {:>8} {:>8} {:>8} {p99:>13}",
        now.sent - before.sent,
        now.delivered - before.delivered,
        now.losses_injected.saturating_sub(before.losses_injected),
        now.fec - before.fec,
        now.nak - before.nak,
    )
}

const HEADER: &str = "second     sent  delivered  dropped   by FEC   by NAK  recovery p99";
const CLEAR_LINE: &str = "\r\x1b[2K";
const SECOND: Duration = Duration::from_secs(1);
const REDRAW: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_shows_the_changes_since_the_last_one_under_its_header() {
        let before = Totals { sent: 100, delivered: 600, losses_injected: 9, fec: 5, nak: 1 };
        let now = Totals { sent: 300, delivered: 1_800, losses_injected: 29, fec: 20, nak: 1 };
        let row = row(2, before, now, Some(12.34));
        assert_eq!(row.len(), HEADER.len());
        let cells: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(cells, ["2", "200", "1200", "20", "15", "0", "12.3", "ms"]);
    }
}

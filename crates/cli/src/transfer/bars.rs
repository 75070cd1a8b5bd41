use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use carom_terminal::output;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::human_bytes;

pub(crate) struct Bar {
    bar: ProgressBar,
    /// Progress line every 5 s, if standard error is not a terminal.
    lines: Option<Lines>,
}

struct Lines {
    told_at: Instant,
    what: &'static str,
}

impl Bar {
    pub(crate) fn new(what: &'static str, is_quiet: bool) -> Self {
        let is_seen = !is_quiet && std::io::stderr().is_terminal();
        let bar = ProgressBar::new(0);
        bar.set_draw_target(match is_seen {
            true => ProgressDrawTarget::stderr_with_hz(5),
            false => ProgressDrawTarget::hidden(),
        });
        bar.set_style(
            ProgressStyle::with_template(BAR).expect("the template is valid").progress_chars("=> "),
        );
        bar.set_prefix(what);
        let lines = (!is_quiet && !is_seen).then(|| Lines { told_at: Instant::now(), what });
        Self { bar, lines }
    }

    pub(crate) fn set(&mut self, bytes: u64, of: u64) {
        self.bar.set_length(of);
        self.bar.set_position(bytes);
        if let Some(lines) = &mut self.lines
            && lines.told_at.elapsed() >= LINE_EVERY
        {
            lines.told_at = Instant::now();
            output::say(format_args!(
                "{}: {} of {}",
                lines.what,
                human_bytes(bytes),
                human_bytes(of)
            ));
        }
    }

    pub(crate) fn say(&self, message: String) {
        self.bar.set_message(message);
    }

    pub(crate) fn line(&self, line: &str) {
        self.bar.suspend(|| output::say(line));
    }

    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }
}

const BAR: &str =
    "{prefix} [{bar:30}] {bytes}/{total_bytes} {binary_bytes_per_sec} {eta} left {msg}";
const LINE_EVERY: Duration = Duration::from_secs(5);

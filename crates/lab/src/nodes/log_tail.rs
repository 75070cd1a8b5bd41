use std::fmt;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

/// The last lines of a log. It is shown as one line that begins with `: `, or as nothing.
pub(crate) struct LogTail {
    lines: Vec<String>,
}

impl LogTail {
    /// Reads the end of a log. A log that cannot be read counts as empty.
    pub(crate) fn of(path: &Path) -> Self {
        let mut bytes = Vec::new();
        let read = File::open(path).and_then(|mut file| {
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(BYTES)))?;
            file.read_to_end(&mut bytes)
        });
        let text = String::from_utf8_lossy(&bytes);
        let lines = text.lines().filter(|line| read.is_ok() && !line.trim().is_empty());
        let lines: Vec<String> = lines.map(str::to_owned).collect();
        Self { lines: lines[lines.len().saturating_sub(LINES)..].to_vec() }
    }
}

impl fmt::Display for LogTail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.lines.is_empty() {
            true => Ok(()),
            false => write!(f, ": {}", self.lines.join("; ")),
        }
    }
}

const BYTES: u64 = 2_000;
const LINES: usize = 3;

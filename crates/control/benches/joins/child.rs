//! A process that takes part; it is this program again.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

/// A process, told what to do line by line. It is ended when this is dropped.
pub(crate) struct Child {
    process: std::process::Child,
    says: BufReader<ChildStdout>,
    hears: ChildStdin,
}

impl Child {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let program = std::env::current_exe().expect("a program that runs has a file");
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("another process");
        let says = BufReader::new(process.stdout.take().expect("it was asked for"));
        let hears = process.stdin.take().expect("it was asked for");
        Self { process, says, hears }
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// The next line that the process prints.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.says.read_line(&mut line).expect("lines in UTF-8");
        assert!(line.ends_with('\n'), "a participant has ended: {:?}", self.process.wait());
        line.trim_end().to_owned()
    }

    /// Waits for a line that must be this one.
    pub(crate) fn await_line(&mut self, expected: &str) {
        assert_eq!(self.line(), expected);
    }

    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.hears, "{line}").expect("the process reads");
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

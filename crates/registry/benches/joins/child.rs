//! Child process of the benchmark, which runs the same program.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

/// Process that is controlled line by line. Dropping it kills the process.
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

    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.says.read_line(&mut line).expect("lines in UTF-8");
        assert!(line.ends_with('\n'), "a participant has ended: {:?}", self.process.wait());
        line.trim_end().to_owned()
    }

    pub(crate) fn await_line(&mut self, expected: &str) {
        assert_eq!(self.line(), expected);
    }

    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.hears, "{line}").expect("the process reads");
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

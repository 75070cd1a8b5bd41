//! Runs the programs that configure namespaces.

use std::io::{ErrorKind, Write as _};
use std::process::{Child, Command, Output, Stdio};

use crate::error::{Error, PRIVILEGE};

/// A program that runs, and must be waited for.
pub(crate) struct Running {
    child: Child,
    shown: String,
}

/// Runs `command` with `input` on its standard input. Returns its standard output.
pub(crate) fn run(command: Command, input: &str) -> Result<String, Error> {
    start(command, input)?.output()
}

/// Starts `command` with `input` on its standard input.
pub(crate) fn start(mut command: Command, input: &str) -> Result<Running, Error> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let shown = shown(&command);
    let mut child = command.spawn().map_err(|error| not_started(&command, &error))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that ends before it reads everything reports the reason in its output.
        let _ = stdin.write_all(input.as_bytes());
    }
    Ok(Running { child, shown })
}

impl Running {
    /// Waits for the end of the program. Returns its standard output.
    pub(crate) fn output(self) -> Result<String, Error> {
        let Self { child, shown } = self;
        let output = child.wait_with_output().map_err(|error| Error::io(&shown, &error))?;
        let Output { status, stdout, stderr } = output;
        if status.success() {
            return Ok(String::from_utf8_lossy(&stdout).into_owned());
        }
        let stderr = String::from_utf8_lossy(&stderr);
        let why = stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        Err(failed(&shown, &why))
    }
}

/// Returns the error for a program that could not be started.
pub(crate) fn not_started(command: &Command, error: &std::io::Error) -> Error {
    let program = command.get_program().to_string_lossy();
    match error.kind() {
        ErrorKind::NotFound => missing(&program),
        _ => Error::io(format!("cannot start {program}"), error),
    }
}

/// Returns the error for a program that failed with the message `why`.
pub(crate) fn failed(shown: &str, why: &str) -> Error {
    // `ip netns exec` reports a missing program in this way.
    if let Some((_, program)) = why.split_once("exec of \"")
        && let Some((program, _)) = program.split_once("\" failed: No such file")
    {
        return missing(program);
    }
    let is_forbidden = ["not permitted", "denied"].iter().any(|text| why.contains(text));
    let cause = format!("{shown}: {why}");
    match is_forbidden {
        true => Error::lacking(cause, PRIVILEGE),
        false => Error::new(cause, "check the kernel's support for this operation"),
    }
}

fn missing(program: &str) -> Error {
    let package = PACKAGES.iter().find(|(name, _)| *name == program).map(|(_, package)| *package);
    let cause = format!("{program} is not installed");
    match package {
        Some(package) => {
            let fix = format!("apt-get install {package}, or the package that has {program}");
            Error::lacking(cause, fix)
        }
        // Its name may be wrong.
        None => Error::new(cause, format!("install {program}, or correct its name")),
    }
}

fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

const PACKAGES: [(&str, &str); 6] = [
    ("bridge", "iproute2"),
    ("ip", "iproute2"),
    ("tc", "iproute2"),
    ("nft", "nftables"),
    ("tcpdump", "tcpdump"),
    ("nsenter", "util-linux"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_program_is_reported_with_its_package() {
        let error = run(Command::new("carom-has-no-such-program"), "").expect_err("not installed");
        assert_eq!(error.cause(), "carom-has-no-such-program is not installed");
        assert!(!error.lacks_prerequisite(), "its name is wrong: {error}");
        let error = failed("ip", "exec of \"nft\" failed: No such file or directory");
        assert_eq!(error.cause(), "nft is not installed");
        assert!(error.fix().contains("nftables") && error.lacks_prerequisite(), "{error}");
        let error = failed("ip netns add h1", "mkdir /run/netns failed: Permission denied");
        assert!(error.fix().starts_with("run as root") && error.lacks_prerequisite(), "{error}");
    }

    #[test]
    fn failing_program_is_reported_with_its_message() {
        let mut command = Command::new("sh");
        command.args(["-c", "cat >&2; exit 3"]);
        let error = run(command, "no\nroom").expect_err("it exits with 3");
        assert!(error.cause().ends_with(": no room"), "{error}");
        assert!(!error.lacks_prerequisite(), "{error}");
    }
}

//! Errors and outcomes of commands.
//!
//! An error prints two lines: one with its cause, one with a fix. An interruption prints its cause.

use std::fmt;
use std::process::ExitCode;

use crate::units::UnitError;

/// An error that ends a command early, with its exit code.
#[derive(Debug, PartialEq, Eq)]
pub struct CliError {
    cause: String,
    fix: String,
    code: u8,
}

/// The outcome of a command that did its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Success: exit code 0.
    Fine,
    /// The command worked, but messages were lost or a check failed: exit code 1.
    Finding,
    /// Any other exit code, such as that of a child process or of an interruption.
    Code(u8),
}

impl CliError {
    /// Creates a usage or environment error, with exit code 2.
    pub fn new(cause: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { cause: one_line(&cause.into()), fix: one_line(&fix.into()), code: WRONG_USE }
    }

    /// Creates the error for an interruption before the work began, with exit code 0.
    pub fn interrupted() -> Self {
        Self { cause: "interrupted before the work began".to_owned(), fix: String::new(), code: 0 }
    }

    /// Creates the error for an interruption during the work, with exit code 0. `what` describes
    /// the state in which the work was left.
    pub fn interrupted_after(what: impl Into<String>) -> Self {
        Self { cause: one_line(&what.into()), fix: String::new(), code: 0 }
    }

    /// Returns the error as a JSON object, for programs that read only standard output.
    pub fn object(&self) -> serde_json::Value {
        match self.is_interruption() {
            true => serde_json::json!({ "event": "interrupted", "cause": self.cause }),
            false => {
                serde_json::json!({ "event": "error", "cause": self.cause, "fix": self.fix })
            }
        }
    }

    /// Returns `true` if the user interrupted the command.
    pub fn is_interruption(&self) -> bool {
        self.code == 0
    }

    /// Creates the error for a failed system operation. `tried` names the operation or its object.
    pub fn io(tried: &str, error: &std::io::Error) -> Self {
        use std::io::ErrorKind;
        let fix = match error.kind() {
            ErrorKind::AddrInUse => "use another port, or stop the program that uses this one",
            ErrorKind::PermissionDenied => "use a port of 1024 or more, or run as root",
            ErrorKind::AddrNotAvailable => "use an address of this machine: see `ip -br addr`",
            _ => "run `carom doctor` to check this machine",
        };
        Self::new(format!("{tried}: {}", plain(error)), fix)
    }

    /// Creates the error for a failure to read or write a file that the user named.
    pub fn file(name: &str, error: &std::io::Error) -> Self {
        use std::io::ErrorKind;
        let fix = match error.kind() {
            ErrorKind::NotFound => "use the name of an existing file",
            ErrorKind::PermissionDenied => "use a file that this user is allowed to read or write",
            _ => "check the file and its disk",
        };
        Self::new(format!("cannot access {name}: {}", plain(error)), fix)
    }

    /// Converts an error that clap found in the command line of `command`.
    pub fn usage(error: &clap::Error, command: &clap::Command) -> Self {
        use clap::error::{ContextKind, ContextValue, ErrorKind};
        use std::error::Error as _;
        let name = command.get_name();
        let context = |kind| match error.get(kind) {
            Some(ContextValue::String(text)) => Some(text.clone()),
            Some(ContextValue::Strings(texts)) => Some(texts.join(", ")),
            _ => None,
        };
        let argument = context(ContextKind::InvalidArg).unwrap_or_default();
        if let Some(unit) = error.source().and_then(|source| source.downcast_ref::<UnitError>()) {
            return Self::new(format!("{argument}: {}", unit.cause), unit.fix.clone());
        }
        if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
            let verbs: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
            let fix = format!("use one of {}; see `{name} --help`", verbs.join(", "));
            return Self::new("no subcommand given", fix);
        }
        let rendered = error.render().to_string();
        let lines: Vec<&str> = rendered.lines().map(str::trim).collect();
        let end = lines.iter().position(|line| line.is_empty()).unwrap_or(lines.len());
        let cause = lines[..end].join(" ");
        let cause = cause.strip_prefix("error: ").unwrap_or(&cause);
        let tip = lines.iter().find_map(|line| line.strip_prefix("tip: "));
        let fix = match error.kind() {
            ErrorKind::ValueValidation | ErrorKind::InvalidValue => {
                let values = context(ContextKind::ValidValue).unwrap_or_default();
                possible(&values, cause).unwrap_or_else(|| {
                    format!("see `{name} SUBCOMMAND --help` for the allowed values")
                })
            }
            _ => format!("see `{name} --help`, or `{name} SUBCOMMAND --help`"),
        };
        Self::new(cause, tip.map_or(fix, str::to_owned))
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.code == 0 {
            return f.write_str(&self.cause);
        }
        write!(f, "error: {}\nfix: {}", self.cause, self.fix)
    }
}

impl From<CliError> for ExitCode {
    fn from(error: CliError) -> Self {
        Self::from(error.code)
    }
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Fine => Self::SUCCESS,
            Outcome::Finding => Self::from(FINDING),
            Outcome::Code(code) => Self::from(code),
        }
    }
}

impl Outcome {
    /// The command was interrupted before its work was done. The exit code is a shell's for SIGINT.
    pub const INTERRUPTED: Self = Self::Code(SIGNALLED);

    /// Returns [`Self::Finding`] if `finding` is `true`, otherwise [`Self::Fine`].
    pub fn of(finding: bool) -> Self {
        if finding { Self::Finding } else { Self::Fine }
    }
}

/// Returns the text of a system error without its number. Its first letter is in lower case.
pub fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

/// Returns the fix for an invalid value, from clap's `values` or the range or format in `cause`.
fn possible(values: &str, cause: &str) -> Option<String> {
    if !values.is_empty() {
        return Some(format!("use one of: {values}"));
    }
    if let Some((_, range)) = cause.rsplit_once(" is not in ") {
        let (first, last) = range.split_once("..").unwrap_or((range, ""));
        let last = match (last.strip_prefix('='), last.parse::<u64>()) {
            (Some(last), _) => last.to_owned(),
            (None, Ok(end)) => end.saturating_sub(1).to_string(),
            (None, Err(_)) => String::new(),
        };
        return Some(match last.is_empty() || last == u64::MAX.to_string() {
            true => format!("use a whole number, {first} or more"),
            false => format!("use a whole number from {first} to {last}"),
        });
    }
    let fix = match cause.rsplit_once(": ").map_or(cause, |(_, why)| why) {
        why if why.contains("digit found") || why.contains("parse integer") => {
            "use a whole number in digits"
        }
        why if why.contains("number too") => "use a smaller number; see --help for the range",
        why if why.contains("socket address") => "use ADDR:PORT, such as 127.0.0.1:7403",
        _ => return None,
    };
    Some(fix.to_owned())
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

const FINDING: u8 = 1;
const WRONG_USE: u8 = 2;
/// Exit code of a command that Ctrl-C has ended, the same as in a shell.
pub(crate) const SIGNALLED: u8 = 130;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_two_lines_whatever_its_cause_holds() {
        let error = CliError::new("first\n  second", "do this\nor that");
        assert_eq!(error.to_string(), "error: first second\nfix: do this or that");
    }

    #[test]
    fn a_value_out_of_range_is_told_the_range() {
        let fix = |cause: &str| possible("", cause).unwrap_or_default();
        let cause = "invalid value '0' for '--jobs <N>': 0 is not in ";
        assert_eq!(fix(&format!("{cause}1..=1024")), "use a whole number from 1 to 1024");
        assert_eq!(fix(&format!("{cause}1..65536")), "use a whole number from 1 to 65535");
        assert_eq!(fix(&format!("{cause}1..")), "use a whole number, 1 or more");
        let cause = "invalid value 'x' for '--count <N>': invalid digit found in string";
        assert_eq!(fix(cause), "use a whole number in digits");
        assert_eq!(possible("auto, unicast", "").as_deref(), Some("use one of: auto, unicast"));
    }

    #[test]
    fn a_system_error_names_what_was_tried_and_not_its_number() {
        let taken = std::io::Error::from_raw_os_error(98);
        let error = CliError::io("port 7400", &taken);
        assert_eq!(error.cause, "port 7400: address already in use");
    }
}

//! The start and the end of a command: its command line, and its exit code.

use std::process::ExitCode;

use clap::{Command, CommandFactory, Parser};
use clap_complete::Shell;

use crate::error::{CliError, Outcome};
use crate::output;

/// Parses the command line. Returns `None` after printing the requested help or version.
pub fn parse<T: Parser>() -> Result<Option<T>, CliError> {
    match T::try_parse() {
        Ok(parsed) => Ok(Some(parsed)),
        Err(error) if error.use_stderr() => Err(CliError::usage(&error, &T::command())),
        Err(help) => {
            // The reader may close the pipe early, as `head` does.
            let _ = help.print();
            Ok(None)
        }
    }
}

/// Returns the exit code for the result of a command. Prints the error if the command failed.
pub fn exit_code(ended: Result<Outcome, CliError>) -> ExitCode {
    match ended {
        Ok(outcome) => outcome.into(),
        Err(error) => {
            output::say(&error);
            error.into()
        }
    }
}

/// Checks the help of a command, for its tests.
///
/// # Panics
/// Panics if the command line is invalid, a subcommand has no example, or a help text names an
/// empty default.
pub fn check_help<T: CommandFactory>() {
    fn check_defaults(command: &mut Command) {
        let help = command.render_long_help().to_string();
        assert!(!help.contains("[default: ]"), "{help}");
        command.get_subcommands_mut().for_each(check_defaults);
    }
    let mut command = T::command();
    command.clone().debug_assert();
    command.build();
    for verb in command.get_subcommands().filter(|verb| verb.get_name() != "help") {
        let help = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
        assert!(help.contains("Example"), "{}", verb.get_name());
    }
    check_defaults(&mut command);
}

/// Prints the completion script of a command for `shell`.
pub fn print_completions<T: CommandFactory>(shell: Shell) -> Result<Outcome, CliError> {
    let mut command = T::command();
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut script);
    output::lines(String::from_utf8_lossy(&script).trim_end()).map(|()| Outcome::Fine)
}

use carom_terminal::CliError;

/// Converts an error of a lab. Both have a cause and a fix.
pub(crate) fn refused(error: &carom_netns::Error) -> CliError {
    CliError::new(error.cause(), error.fix())
}

/// The reason why a run has no result.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Failure {
    Failed { cause: String, fix: String },
    Interrupted,
}

impl From<String> for Failure {
    /// Creates the failure of a system, which its own log or a repetition must explain.
    fn from(cause: String) -> Self {
        Self::Failed { cause, fix: REPEAT.to_owned() }
    }
}

impl From<carom_netns::Error> for Failure {
    fn from(error: carom_netns::Error) -> Self {
        Self::Failed { cause: error.cause().to_owned(), fix: error.fix().to_owned() }
    }
}

const REPEAT: &str =
    "run the row with this system alone, by --systems; its peer may need a rebuild";

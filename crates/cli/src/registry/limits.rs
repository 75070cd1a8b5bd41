use std::time::Duration;

use carom_terminal::CliError;

pub(super) fn check_detection(flag: &str, time: Duration) -> Result<(), CliError> {
    if time >= LEAST_DETECTION {
        return Ok(());
    }
    let cause = format!("{flag}: {time:?} is too short: the minimum is {LEAST_DETECTION:?}");
    Err(CliError::new(cause, format!("use {LEAST_DETECTION:?} or more")))
}

pub(super) fn check_name(flag: &str, name: &str) -> Result<(), CliError> {
    if name.len() <= LONGEST_NAME {
        return Ok(());
    }
    let fix = format!("use a name of at most {LONGEST_NAME} bytes");
    Err(CliError::new(format!("{flag}: the name is too long: {} bytes", name.len()), fix))
}

const LEAST_DETECTION: Duration = Duration::from_millis(100);
const LONGEST_NAME: usize = 255;

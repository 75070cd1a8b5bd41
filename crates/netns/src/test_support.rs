#[path = "../../cli/tests/lab/permitted.rs"]
mod permitted;
#[path = "../../cli/tests/lab/skipping.rs"]
mod skipping;

use crate::error::Error;
pub(crate) use permitted::permitted;

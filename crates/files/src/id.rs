use std::fmt;

use serde::{Deserialize, Serialize};

/// The id of a transfer: a hash over its manifest without modes and times.
///
/// The same content with the same names and holes has the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TransferId(pub [u8; 32]);

impl TransferId {
    /// Returns the part of the id that blocks carry.
    pub fn tag(&self) -> [u8; 16] {
        let mut tag = [0; 16];
        tag.copy_from_slice(&self.0[..16]);
        tag
    }

    /// Returns the first 16 hexadecimal digits of the id, for directory names and for display.
    pub fn short(&self) -> String {
        self.0[..8].iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl fmt::Display for TransferId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

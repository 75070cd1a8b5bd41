//! What names a transfer.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The hash over a manifest: the same content under the same names has the same id, whoever sends
/// it and however often. Modes and times are not in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TransferId(pub [u8; 32]);

impl TransferId {
    /// The part of the id that blocks carry.
    pub fn tag(&self) -> [u8; 16] {
        let mut tag = [0; 16];
        tag.copy_from_slice(&self.0[..16]);
        tag
    }

    /// The first 16 hexadecimal digits, for names of directories and for people.
    pub fn short(&self) -> String {
        self.0[..8].iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl fmt::Display for TransferId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

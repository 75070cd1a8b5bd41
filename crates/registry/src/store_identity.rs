use std::fmt;

use crate::error::StoreError;

/// Format of the store's tables or keys. A store of another format is rejected.
const FORMAT: u32 = 2;

/// The cluster that a store belongs to, and its number of partitions.
///
/// The stored form is the format (u32), the number of partitions (u16) and the cluster's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoreIdentity {
    pub(crate) cluster: String,
    pub(crate) partitions: u16,
}

impl StoreIdentity {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = FORMAT.to_be_bytes().to_vec();
        bytes.extend_from_slice(&self.partitions.to_be_bytes());
        bytes.extend_from_slice(self.cluster.as_bytes());
        bytes
    }

    /// Decodes an identity. Fails if the format is not [`FORMAT`], or if the bytes are malformed.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, StoreError> {
        let damaged = || StoreError::Damaged { what: "its identity cannot be read".into() };
        let (format, rest) = bytes.split_first_chunk().ok_or_else(damaged)?;
        let found = u32::from_be_bytes(*format);
        if found != FORMAT {
            return Err(StoreError::Format { found, expected: FORMAT });
        }
        let (partitions, cluster) = rest.split_first_chunk().ok_or_else(damaged)?;
        let cluster = String::from_utf8(cluster.to_vec()).map_err(|_| damaged())?;
        Ok(Self { cluster, partitions: u16::from_be_bytes(*partitions) })
    }

    pub(crate) fn ensure_matches(&self, ours: &Self) -> Result<(), StoreError> {
        if self != ours {
            return Err(StoreError::Other { theirs: self.to_string(), ours: ours.to_string() });
        }
        Ok(())
    }
}

impl fmt::Display for StoreIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cluster {:?} with {} partitions", self.cluster, self.partitions)
    }
}

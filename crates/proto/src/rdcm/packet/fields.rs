//! Fields that several packets and messages have in common.

use alloc::vec::Vec;

use bytes::Buf;

use crate::NodeId;
use crate::wire::DecodeError;

pub(crate) fn take_list<T>(
    bytes: &mut &[u8],
    most: usize,
    mut take: impl FnMut(&mut &[u8]) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    let count = usize::from(bytes.try_get_u16().map_err(|_| DecodeError::Length)?);
    if count > most {
        return Err(DecodeError::Value);
    }
    (0..count).map(|_| take(bytes)).collect()
}

pub(crate) fn take_u8(bytes: &mut &[u8]) -> Result<u8, DecodeError> {
    bytes.try_get_u8().map_err(|_| DecodeError::Length)
}

pub(crate) fn take_u32(bytes: &mut &[u8]) -> Result<u32, DecodeError> {
    bytes.try_get_u32().map_err(|_| DecodeError::Length)
}

pub(crate) fn take_u64(bytes: &mut &[u8]) -> Result<u64, DecodeError> {
    bytes.try_get_u64().map_err(|_| DecodeError::Length)
}

/// Reads a packet number. At a million packets per second, a stream takes 30,000 years to reach the
/// limit, and sums of numbers below it do not overflow.
pub(crate) fn take_number(bytes: &mut &[u8]) -> Result<u64, DecodeError> {
    let number = take_u64(bytes)?;
    if number <= MAX_NUMBER { Ok(number) } else { Err(DecodeError::Value) }
}

pub(crate) fn take_node(bytes: &mut &[u8]) -> Result<NodeId, DecodeError> {
    take_u64(bytes).map(NodeId)
}

/// Maximum packet number.
pub(crate) const MAX_NUMBER: u64 = 1 << 60;

//! This node's own messages.

pub(crate) mod fragmentation;
pub(crate) mod own_stream;

//! stand-in
/// Which group, among those that this node is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct GroupIx(pub(super) u32);

//! Early end of a run.

/// Returns `true` if the run is to end early.
pub(crate) type Ends<'a> = &'a (dyn Fn() -> bool + 'a);

//! Early end of a run.

pub(crate) type Ends<'a> = &'a (dyn Fn() -> bool + 'a);

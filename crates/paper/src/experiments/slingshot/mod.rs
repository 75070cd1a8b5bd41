//! Experiments of the paper on Slingshot.

pub(super) mod fire;
pub(super) mod model;
pub(super) mod size;
pub(super) mod srm;

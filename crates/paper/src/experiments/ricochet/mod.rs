pub(super) mod cost;
pub(super) mod groups;
pub(super) mod losses;
pub(super) mod model;
pub(super) mod overlap;
pub(super) mod srm;
pub(super) mod windows;

pub(super) mod fire;
pub(super) mod model;
pub(super) mod size;
pub(super) mod srm;

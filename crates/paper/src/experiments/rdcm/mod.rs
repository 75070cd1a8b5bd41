mod bed;
pub(super) mod failures;
pub(super) mod losses;
pub(super) mod rate;
pub(super) mod table;

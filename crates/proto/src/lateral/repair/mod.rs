//! Repairs: their construction (Ricochet 3.1 and 3.2) and their decoding (Slingshot 3.2).

pub(crate) mod bins;
pub(crate) mod chain;
pub(crate) mod pending_repairs;
pub(crate) mod regions;

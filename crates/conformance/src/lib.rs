//! Scenarios and checkers that every protocol must pass, in the worlds of [`carom_sim`].
//!
//! | suite | engines |
//! |---|---|
//! | [`lateral`] | any engine with unordered groups: the lateral engines, and the baselines |
//! | [`rmp`] | token rings |
//! | [`rdcm`] | bulk groups |
//!
//! Each suite draws the [scenario](carom_sim::scenario) of a seed. Faults occur first; then the
//! world is healed, and the group must recover. The suite's checkers examine the record of the run.
//! [`providers`] contains the registry from which members can get their views.

mod draft;
mod draw;
mod findings;
mod harness;
pub mod lateral;
mod memory;
mod participants;
pub mod providers;
pub mod rdcm;
mod recovery;
pub mod rmp;
mod seeds;
mod step;

pub use draw::one_of;
pub use harness::{Record, gossip_forgery};
pub use memory::MemoryUse;
pub use participants::{Participants, Views};
pub use step::{Forgery, Kind, Step};

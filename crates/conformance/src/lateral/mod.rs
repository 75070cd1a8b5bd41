//! Scenarios of unordered groups, with lateral engines or any other engines.

pub mod checkers;
mod engine;
mod history;
mod runner;
mod scenario;
mod setup;
mod suite;

pub use self::engine::LATERAL;
pub use self::history::{History, OwedFrom};
pub use self::scenario::scenario;
pub use self::setup::{Forge, Promise, Setup};
pub use self::suite::EngineSuite;

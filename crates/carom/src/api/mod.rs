//! Handles of the application. They share state, queues and commands with the runtime, and import
//! only `shared`. The exception is `builder`, which builds a node and hands it to its driver.

pub mod blocking;
pub(crate) mod builder;
pub(crate) mod group;
mod handle;
pub(crate) mod lock;
pub(crate) mod news;
pub(crate) mod node;
pub(crate) mod publish;
mod query;
pub(crate) mod shared_state;
pub(crate) mod split;

//! Threads that drive nodes, and the state of each node around its engines. The runtime
//! communicates with the application only through `shared`, and with the sockets only through
//! `net`.

mod calls;
mod clock;
mod confirms;
mod delivery;
pub(crate) mod driver;
mod given_up;
mod group_runtime;
mod groups;
mod locks;
pub(crate) mod node_runtime;
mod own_messages;
mod pending_joins;
mod poll_timer;
mod send_schedule;

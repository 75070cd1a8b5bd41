//! The multicast manager (sections 3.1, 3.2 and 3.4), which computes the multicast tree and the
//! overlay of each group.
//!
//! [`TreeManager`] handles only hosts. `MulticastManager` maps nodes to hosts. It runs inside a
//! sender, or inside a [`ManagerService`](service::ManagerService) that serves all senders of a
//! network.

mod installer;
pub mod messages;
mod multicast_manager;
mod overlay;
mod placement;
mod requests;
mod ring;
pub mod service;
pub mod tree;
mod tree_manager;

#[cfg(test)]
mod group_tests;

pub use self::installer::{Installation, TreeChange, TreeLink, TreeMember};
pub use self::messages::PlaceChange;
pub(super) use self::multicast_manager::MulticastManager;
pub(super) use self::requests::ManagerRequests;
pub use self::tree_manager::{LinkState, TreeManager};
pub(super) use self::tree_manager::{LinkTiming, ManagerError};

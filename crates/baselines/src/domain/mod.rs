//! The common part of RMTP, LBRM and TMTP. A group is divided into domains, each with a head that
//! keeps packets and repairs them for the members of its domain.
//!
//! The head is a *designated receiver* in RMTP, a *logging server* in LBRM, and a *domain manager*
//! in TMTP. The heads, and the multicast groups of single domains, are [declared](Hierarchy), not
//! discovered. The papers derive both from the time to live of multicast packets, which carries no
//! information in a data center.

mod config;
mod followers;
mod from_tree;
mod hierarchy;
mod nak;
mod packet_key;
mod repair_store;
mod requests;

pub use self::config::{DomainConfig, RepairBy};
pub(crate) use self::followers::Followers;
pub use self::from_tree::Plan;
pub use self::hierarchy::{Domain, Hierarchy, HierarchyError, Place, Scope};
pub(crate) use self::nak::{Nak, Naks};
pub(crate) use self::repair_store::RepairStore;

//! Bulk delivery over a multicast tree with a backup overlay: RDCM.
//!
//! Source: D. Li, M. Xu, Y. Liu, X. Xie, Y. Cui, J. Wang, G. Chen, *Reliable Multicast in Data
//! Center Networks*, IEEE Transactions on Computers 63(8), 2014.
//!
//! | paper | here |
//! |---|---|
//! | 2.2 topologies, figures 2 to 4 | `topology.rs` |
//! | 3.1 the multicast manager computes the tree | `tree.rs` |
//! | 3.2 backup overlay, figure 8, Theorem 1 | `overlay.rs` |
//! | 3.1, 3.4 receivers come and go, links fail | `multicast_manager.rs` |
//! | 3.4 few rings change | `MulticastTree::graft`, `Overlay::of_tree` |
//! | 3.3 packet repair: the repair window | `having.rs`, `window.rs` |
//! | 3.5 congestion control, BIC | `congestion.rs` |

pub mod congestion;
pub mod having;
pub mod multicast_manager;
pub mod overlay;
pub mod topology;
#[cfg(test)]
mod topology_of_tests;
pub mod tree;
pub mod window;

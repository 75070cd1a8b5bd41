//! Whole nodes on a static list.
//!
//! An attacker sends forged packets to live nodes from its own address, in the names of members or
//! in its own name. The packets change nothing at the members, and little is sent in return.

mod lateral;
mod leaving;
mod net;
mod ring;

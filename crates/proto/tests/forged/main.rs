//! Forged packets that an attacker sends to live nodes from its own address.
//!
//! The packets are in the names of members or in the attacker's own name. They change nothing at
//! the members, and little is sent in return.

mod lateral;
mod net;
mod ring;

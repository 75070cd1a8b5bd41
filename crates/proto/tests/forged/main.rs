//! Packets that somebody sends to live nodes from an address of its own, in the names of members
//! or in its own: nothing at the members changes, and little is sent to anybody for it.

mod lateral;
mod net;
mod ring;

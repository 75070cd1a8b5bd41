//! Whole transfers: real TCP on the loopback, a multicast stream within the process that loses,
//! repeats, reorders and corrupts, and directories that are thrown away.

mod disk;
mod disturbed;
mod kit;
mod resumed;
mod trees;
mod trust;
mod undisturbed;

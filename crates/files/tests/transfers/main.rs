//! Complete transfers over real TCP on loopback, with a multicast stream within the process that
//! loses, duplicates, reorders and corrupts messages, into temporary directories.

mod disk;
mod disturbed;
mod kit;
mod resumed;
mod trees;
mod trust;
mod undisturbed;

//! Tests complete transfers over real TCP on loopback into temporary directories. The multicast
//! stream is within the process and loses, duplicates, reorders and corrupts messages.

mod disk;
mod disturbed;
mod kit;
mod resumed;
mod trees;
mod trust;
mod undisturbed;

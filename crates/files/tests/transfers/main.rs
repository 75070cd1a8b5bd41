//! Tests complete transfers over real TCP on loopback into temporary directories. The multicast
//! stream is within the process and loses, duplicates, reorders and corrupts messages.

mod disk;
mod disturbed;
mod kit;
mod resumed;
#[path = "../../../cli/tests/lab/skipping.rs"]
mod skipping;
#[path = "../../../cli/tests/lab/small_disk.rs"]
mod small_disk;
mod trees;
mod trust;
mod undisturbed;

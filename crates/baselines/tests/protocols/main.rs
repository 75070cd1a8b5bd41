//! Tests several engines of one protocol together.

#![allow(dead_code, reason = "the lateral engines use the test network too")]

mod ack;
mod bimodal;
mod domains;
mod fec;
mod lbrm;
mod rig;
mod rmtp;
mod srm;
mod tmtp;
#[path = "../../../proto/tests/lateral/world.rs"]
mod world;

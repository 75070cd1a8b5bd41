//! Tests of several engines of one protocol together.

mod ack;
mod bimodal;
mod domains;
mod fec;
mod lbrm;
mod rig;
mod rmtp;
mod srm;
mod tmtp;

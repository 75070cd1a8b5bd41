//! Several lateral engines together, under loss.

#![allow(dead_code, reason = "the baselines use the test network too")]

mod confirmations;
mod delivery;
mod findings;
mod forged;
mod hostile;
mod limits;
mod losses;
mod members;
mod nonsense;
mod pieces;
mod restarts;
mod rig;
mod world;
mod wrap;

//! Several lateral engines together, under loss.

mod confirmations;
mod delivery;
mod forged;
mod limits;
mod losses;
mod members;
mod nonsense;
mod restarts;
#[path = "../rig/mod.rs"]
mod rig;
mod wrap;

use carom_proto::{GroupId, RateOfFire};

const RATE: RateOfFire = RateOfFire::new(8, 5);

fn group(number: u32) -> GroupId {
    GroupId(100 + number)
}

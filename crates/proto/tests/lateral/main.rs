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

use carom_proto::GroupId;
use rig::RATE;

fn group(number: u32) -> GroupId {
    GroupId(100 + number)
}

//! Epochs: the version numbers of places. They wrap around and begin at a random number. A node
//! that has not seen a receiver's places can hardly forge a place or a report.

use crate::SeqNo;

pub(super) const NONE: u32 = 0;
/// Maximum distance between valid epochs. An epoch that is farther away is forged, or its receiver
/// needs its place again.
const NEAR: i32 = 1024;

pub(super) fn after(epoch: u32) -> u32 {
    match epoch.wrapping_add(1) {
        NONE => 1,
        next => next,
    }
}

pub(super) fn is_after(a: u32, b: u32) -> bool {
    SeqNo(a).is_after(SeqNo(b))
}

pub(super) fn are_near(a: u32, b: u32) -> bool {
    (-NEAR..=NEAR).contains(&(a.wrapping_sub(b) as i32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_wrap_around_and_none_is_left_out() {
        assert_eq!((after(5), after(u32::MAX)), (6, 1));
        assert!(is_after(1, u32::MAX) && !is_after(u32::MAX, 1) && !is_after(7, 7));
        assert!(are_near(u32::MAX, 900) && are_near(900, u32::MAX));
        assert!(!are_near(2000, 1) && !are_near(1, 2000));
    }
}

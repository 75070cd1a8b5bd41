/// The delivered requests of a caller. A repeated request is not delivered again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub struct Seen {
    /// All smaller numbers were delivered, or never will be.
    pub base: u32,
    /// Delivered numbers from `base` on, one bit each.
    pub bits: u128,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    New,
    Again,
    Over,
    Impossible,
}

/// Maximum distance between two request numbers of the same incarnation of a caller.
const MOST_APART: u32 = 1 << 15;
pub(crate) const MAX_WAITING: u32 = 64;

impl Seen {
    pub(crate) fn before(oldest: u32) -> Self {
        Self { base: oldest.wrapping_sub(MAX_WAITING), bits: 0 }
    }

    /// Forgets the numbers before `oldest`, except the last [`MAX_WAITING`]. Messages below total
    /// order may arrive late.
    pub(crate) fn forget_before(&mut self, oldest: u32) {
        let base = oldest.wrapping_sub(MAX_WAITING);
        let step = base.wrapping_sub(self.base) as i32;
        if step > 0 {
            self.bits = self.bits.checked_shr(step as u32).unwrap_or(0);
            self.base = base;
        }
    }

    pub(crate) fn is_over(&self, number: u32) -> bool {
        let oldest = self.base.wrapping_add(MAX_WAITING);
        (number.wrapping_sub(oldest) as i32) < 0
    }

    pub(crate) fn is_of_same_start(&self, number: u32) -> bool {
        (number.wrapping_sub(self.base) as i32).unsigned_abs() <= MOST_APART
    }

    pub(crate) fn record(&mut self, number: u32) -> Sight {
        let place = number.wrapping_sub(self.base) as i32;
        if place < 0 {
            return Sight::Again;
        } else if place >= u128::BITS as i32 {
            return Sight::Impossible;
        }
        let bit = 1_u128 << place;
        let is_new = self.bits & bit == 0;
        self.bits |= bit;
        if is_new { Sight::New } else { Sight::Again }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_new_once_also_where_numbers_begin_again() {
        let mut seen = Seen::before(u32::MAX - 1);
        for number in [u32::MAX - 1, 0, u32::MAX, 61] {
            assert_eq!(seen.record(number), Sight::New, "{number}");
            assert_eq!(seen.record(number), Sight::Again, "{number}");
        }
        assert_eq!(seen.record(100), Sight::Impossible);
        seen.forget_before(62);
        assert_eq!(seen.record(0), Sight::Again);
        assert_eq!(seen.record(1), Sight::New);
        assert_eq!(seen.record(u32::MAX), Sight::Again);
        seen.forget_before(10_000);
        assert_eq!((seen.record(61), seen.record(10_000)), (Sight::Again, Sight::New));
    }
}

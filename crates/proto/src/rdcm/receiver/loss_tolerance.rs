/// Counters of arrived and lost packets, over the last one or two thousand packets.
#[derive(Clone, Debug)]
pub(super) struct LossTolerance {
    share: f64,
    arrived: u32,
    lost: u32,
}

/// Minimum number of packets that are considered. The counts are halved after twice as many.
const SPAN: u32 = 1000;
/// Number of losses tolerated in addition to the share, because a few losses can coincide.
const CHANCE: f64 = 4.0;

impl LossTolerance {
    pub(super) fn new(share: f64) -> Self {
        Self { share, arrived: 0, lost: 0 }
    }

    pub(super) fn on_arrival(&mut self, lost_before: u64) -> bool {
        self.arrived += 1;
        self.lost = self.lost.saturating_add(u32::try_from(lost_before).unwrap_or(u32::MAX));
        if lost_before == 0 {
            if self.arrived >= 2 * SPAN {
                (self.arrived, self.lost) = (self.arrived / 2, self.lost / 2);
            }
            return false;
        }
        if self.share <= 0.0 {
            return true;
        }
        let all = f64::from(self.arrived.max(SPAN)) + f64::from(self.lost);
        f64::from(self.lost) > self.share * all + CHANCE
    }

    pub(super) fn reset(&mut self) {
        (self.arrived, self.lost) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    fn answers(share: f64, loss: f64, packets: u32) -> u32 {
        let (mut tolerance, mut rng) = (LossTolerance::new(share), Rng::new(7));
        let (mut answers, mut gap) = (0, 0);
        for _ in 0..packets {
            if rng.chance(loss) {
                gap += 1;
            } else if tolerance.on_arrival(std::mem::take(&mut gap)) {
                tolerance.reset();
                answers += 1;
            }
        }
        answers
    }

    #[test]
    fn few_losses_are_tolerated_and_many_are_not() {
        assert!(answers(0.02, 0.01, 1_000_000) < 20);
        assert!(answers(0.02, 0.05, 1_000_000) > 1500);
        assert_eq!(answers(0.02, 0.0, 10_000), 0);
    }

    #[test]
    fn burst_exceeds_tolerance_and_zero_tolerates_nothing() {
        assert!(LossTolerance::new(0.02).on_arrival(30));
        assert!(!LossTolerance::new(0.02).on_arrival(10));
        assert!(LossTolerance::new(0.0).on_arrival(1));
    }
}

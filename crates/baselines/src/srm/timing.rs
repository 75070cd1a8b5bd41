//! Timer parameters, fixed or adapted (section VII, ns-2's `Agent/SRM/Adaptive`).

use core::time::Duration;

use carom_proto::Rng;

use super::config::Timing as Choice;

#[derive(Clone, Debug)]
pub(crate) struct Timing {
    adaptive: bool,
    by_group_size: bool,
    pub(crate) request: Interval,
    pub(crate) repair: Interval,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Interval {
    adaptive: bool,
    /// Minimum wait: C1 or D1.
    pub(crate) start: f64,
    pub(crate) width: f64,
    /// Mean number of duplicates per period. A period lasts from one set timer to the next.
    duplicates_mean: Option<f64>,
    /// Mean time, in round trips, until the first request (repair) was sent or received.
    delay_mean: Option<f64>,
    duplicates: u32,
    is_closest: bool,
}

const NEWEST: f64 = 0.25;
/// Acceptable number of duplicates in a period (`AveDups_`).
const DUPLICATES_GOAL: f64 = 1.0;
/// Acceptable delay in round trips (`AveDelay_`).
const DELAY_GOAL: f64 = 1.0;
/// Margin below the goal at which duplicates reduce the parameters (`eps_`).
const MARGIN: f64 = 0.1;
/// Bounds of the parameters: `MinC1_` and `MinD1_`, `MinC2_` and `MinD2_`, and `MaxC1_`.
const MIN_START: f64 = 0.5;
const MIN_WIDTH: f64 = 1.0;
const MAX_REQUEST_START: f64 = 2.0;
/// Ratio of another member's distance to this member's above which this member is the closest.
const CLOSER_BY: f64 = 1.5;
const LONGEST_WAIT: Duration = Duration::from_secs(3600);
/// Minimum wait, so that a timer that is set again always advances.
const SHORTEST_WAIT: Duration = Duration::from_micros(1);

impl Timing {
    pub(crate) fn new(choice: Choice) -> Self {
        let interval =
            |adaptive, start, width| Interval { adaptive, start, width, ..Interval::default() };
        let (adaptive, by_group_size, [c1, c2, d1, d2]) = match choice {
            Choice::Fixed { c1, c2, d1, d2 } => (false, false, [c1, c2, d1, d2]),
            Choice::LogOfGroup { c1, c2 } => (false, true, [c1, c2, 0.0, 0.0]),
            Choice::Adaptive => (true, false, [2.0, 2.0, -1.0, -1.0]),
        };
        let request = interval(adaptive, c1, c2);
        Self { adaptive, by_group_size, request, repair: interval(adaptive, d1, d2) }
    }

    pub(crate) fn backoff_factor(&self) -> f64 {
        if self.adaptive { 3.0 } else { 2.0 }
    }

    pub(crate) fn begin_request(&mut self, size: usize) {
        if self.adaptive {
            self.request.adapt();
            self.request.keep_within(MAX_REQUEST_START, size as f64);
        }
    }

    pub(crate) fn begin_repair(&mut self, size: usize) {
        let log = libm::log10(size.max(1) as f64);
        if self.by_group_size {
            (self.repair.start, self.repair.width) = (log, log);
        }
        if self.adaptive {
            if self.repair.start < 0.0 {
                (self.repair.start, self.repair.width) = (log, log);
            }
            self.repair.adapt();
            self.repair.keep_within(log, size as f64);
        }
    }
}

impl Interval {
    pub(crate) fn draw(&self, rng: &mut Rng, distance: Duration, scale: f64) -> Duration {
        let distances = self.start + self.width * rng.fraction();
        let seconds = distance.as_secs_f64() * distances * scale;
        let (least, most) = (SHORTEST_WAIT.as_secs_f64(), LONGEST_WAIT.as_secs_f64());
        Duration::from_secs_f64(seconds.clamp(least, most))
    }

    pub(crate) fn note_delay(&mut self, delay: Duration, distance: Duration) {
        let round_trips = delay.as_secs_f64() / (2.0 * distance.as_secs_f64());
        self.delay_mean = Some(mean(self.delay_mean, round_trips));
    }

    pub(crate) fn note_duplicate(&mut self) {
        self.duplicates = self.duplicates.saturating_add(1);
    }

    /// Compares the distances of this member and the sender of the same request (repair).
    pub(crate) fn note_other(&mut self, other: Duration, own: Duration) {
        self.is_closest = other.as_secs_f64() > CLOSER_BY * own.as_secs_f64();
    }

    /// Records that this member sent the first request (repair), and reduces its minimum wait.
    pub(crate) fn note_sent(&mut self) {
        if self.adaptive {
            self.start = (self.start - 0.1).max(MIN_START);
            self.is_closest = true;
        }
    }

    fn adapt(&mut self) {
        let Some(delay) = self.delay_mean else { return };
        let duplicates = mean(self.duplicates_mean, f64::from(self.duplicates));
        self.duplicates_mean = Some(duplicates);
        self.duplicates = 0;
        if core::mem::take(&mut self.is_closest) {
            self.width -= 0.1;
        } else if duplicates >= DUPLICATES_GOAL {
            self.start += 0.1;
            self.width += 0.5;
        } else if duplicates < DUPLICATES_GOAL - MARGIN {
            if delay > DELAY_GOAL {
                self.width -= 0.1;
            }
            if duplicates < 0.25 {
                self.start -= 0.05;
            }
        } else {
            self.start += 0.05;
        }
    }

    /// Clamps the parameters. If the bounds cross, as in a group of two, the minimum applies.
    fn keep_within(&mut self, max_start: f64, max_width: f64) {
        self.start = self.start.min(max_start).max(MIN_START);
        self.width = self.width.min(max_width).max(MIN_WIDTH);
    }
}

fn mean(before: Option<f64>, newest: f64) -> f64 {
    before.map_or(newest, |before| (1.0 - NEWEST) * before + NEWEST * newest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn waits_are_drawn_evenly_from_the_interval() {
        let timing = Timing::new(Choice::Fixed { c1: 2.0, c2: 2.0, d1: 1.0, d2: 1.0 });
        let mut rng = Rng::new(1);
        let mut draw = |interval: &Interval, scale| -> Vec<f64> {
            let wait = |_| interval.draw(&mut rng, SECOND, scale).as_secs_f64();
            (0..4000).map(wait).collect()
        };
        for (interval, scale, least, most) in [
            (&timing.request, 1.0, 2.0, 4.0),
            (&timing.request, 4.0, 8.0, 16.0),
            (&timing.repair, 1.0, 1.0, 2.0),
        ] {
            let waits = draw(interval, scale);
            assert!(waits.iter().all(|wait| (least..=most).contains(wait)), "{interval:?}");
            let mean = waits.iter().sum::<f64>() / waits.len() as f64;
            assert!((mean - (least + most) / 2.0).abs() < 0.02 * most, "{interval:?}: {mean}");
        }
    }

    #[test]
    fn repairs_are_spread_by_the_logarithm_of_the_group() {
        let mut timing = Timing::new(Choice::LogOfGroup { c1: 2.0, c2: 2.0 });
        timing.begin_repair(100);
        assert_eq!((timing.repair.start, timing.repair.width), (2.0, 2.0));
    }

    #[test]
    fn many_duplicates_spread_the_timers_and_few_draw_them_together() {
        let mut timing = Timing::new(Choice::Adaptive);
        timing.request.note_delay(SECOND, SECOND);
        for _ in 0..20 {
            (0..5).for_each(|_| timing.request.note_duplicate());
            timing.begin_request(64);
        }
        let spread = timing.request.clone();
        assert!(spread.width > 8.0 && spread.start == MAX_REQUEST_START, "{spread:?}");
        timing.request.note_delay(SECOND * 20, SECOND);
        (0..200).for_each(|_| timing.begin_request(64));
        assert!(timing.request.width < spread.width / 2.0, "{:?}", timing.request);
        assert_eq!(timing.request.start, MIN_START);
    }

    #[test]
    fn who_is_closest_gets_quicker() {
        let mut timing = Timing::new(Choice::Adaptive);
        timing.begin_repair(64);
        let before = timing.repair.clone();
        timing.repair.note_delay(SECOND, SECOND);
        for _ in 0..10 {
            timing.repair.note_sent();
            timing.repair.note_other(SECOND * 2, SECOND);
            timing.begin_repair(64);
        }
        let after = timing.repair;
        assert!(after.start < before.start && after.width < before.width, "{after:?}");
    }
}

//! Congestion control (section 3.5): the BIC window of one receiver.
//!
//! Source: L. Xu, K. Harfoush, I. Rhee, *Binary Increase Congestion Control (BIC) for Fast
//! Long-Distance Networks*, INFOCOM 2004. The constants are those of Linux's `tcp_bic`.
//!
//! A receiver counts packets of the tree as a TCP sender counts acknowledgments. A gap counts as
//! one loss. The receiver reports to the sender the highest sequence number that it expects.
//! Repairs arrive on other paths and do not count.
//!
//! Most windows are not used up, because the sender follows the slowest receiver or its
//! application. The size of an unused window says nothing about the path: it would grow until the
//! first loss, and then be far too large. A window therefore grows only while it is used, as in TCP
//! (RFC 7661), and a loss reduces the part that was in use.

/// Largest window, in packets, that grows and shrinks as in Reno.
const LOW_WINDOW: u32 = 14;
const MAX_INCREMENT: u32 = 16;
/// Part of a window that remains after a loss, in units of 1/1024.
const BETA: u64 = 819;
/// Each round trip covers the distance to the last maximum divided by this number.
const SEARCH_PART: u32 = 4;
/// Number of round trips for growth by [`SEARCH_PART`] packets near the last maximum.
const SMOOTH_PART: u32 = 20;
/// Maximum arrivals per increment before the first loss: growth by at least 5 % per round trip.
const UNTRIED_STEP: u32 = 20;

const MAX_WINDOW: u32 = 1 << 24;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Bic {
    window: u32,
    max_window: u32,
    threshold: u32,
    /// Window at the last loss, or less to leave room for other flows. 0 before the first loss.
    last_max: u32,
    arrived: u32,
    /// Maximum number of packets in flight in each of the last two windows of packets.
    used: [u32; 2],
    seen: u32,
    /// Losses below this number belong to a loss to which the window has already reacted.
    answered_up_to: u64,
}

impl Bic {
    pub(super) fn new(initial: u32, max_window: u32) -> Self {
        let max_window = max_window.clamp(1, MAX_WINDOW);
        let window = initial.clamp(1, max_window);
        Self { window, max_window, threshold: u32::MAX, ..Self::default() }
    }

    pub(super) fn highest_expected(&self, highest: u64) -> u64 {
        highest.saturating_add(self.window.into())
    }

    pub(super) fn on_arrival(&mut self, in_flight: u32) {
        self.record_used(in_flight);
        if self.window >= self.max_window.min(self.used().saturating_mul(2)) {
            self.arrived = 0;
            return;
        }
        self.arrived += 1;
        if self.arrived >= self.packets_per_step() {
            self.arrived = 0;
            self.window += 1;
        }
    }

    /// Processes a loss while fewer than `in_flight` packets were in flight. `highest` is the
    /// highest number that has arrived.
    ///
    /// Returns `true` if the window is reduced, which happens once for all losses of a round trip.
    pub(super) fn on_loss(&mut self, seqno: u64, highest: u64, in_flight: u32) -> bool {
        if seqno < self.answered_up_to {
            return false;
        }
        self.record_used(in_flight);
        self.window = self.window.min(self.used().max(LOW_WINDOW));
        self.answered_up_to = self.highest_expected(highest).saturating_add(1);
        let (window, part) = (u64::from(self.window), 1024);
        // If a window is reduced before it has recovered, it leaves room for other flows.
        self.last_max = match self.window < self.last_max {
            true => (window * (part + BETA) / (2 * part)) as u32,
            false => self.window,
        };
        let left = match self.window <= LOW_WINDOW {
            true => self.window / 2,
            false => (window * BETA / part) as u32,
        };
        self.window = left.max(2).min(self.max_window);
        self.threshold = self.window;
        self.arrived = 0;
        true
    }

    fn record_used(&mut self, in_flight: u32) {
        self.used[0] = self.used[0].max(in_flight);
        self.seen += 1;
        if self.seen >= self.window {
            (self.used, self.seen) = ([0, self.used[0]], 0);
        }
    }

    fn used(&self) -> u32 {
        self.used[0].max(self.used[1])
    }

    fn packets_per_step(&self) -> u32 {
        let window = self.window;
        if window < self.threshold {
            return 1;
        }
        if window <= LOW_WINDOW {
            return window;
        }
        let steps = if window < self.last_max {
            let distance = (self.last_max - window) / SEARCH_PART;
            match distance {
                0 | 1 => window * SMOOTH_PART / SEARCH_PART,
                2..=MAX_INCREMENT => window / distance,
                _ => window / MAX_INCREMENT,
            }
        } else {
            let beyond = window - self.last_max;
            if beyond < SEARCH_PART {
                window * SMOOTH_PART / SEARCH_PART
            } else if beyond < MAX_INCREMENT * (SEARCH_PART - 1) {
                window * (SEARCH_PART - 1) / beyond
            } else {
                window / MAX_INCREMENT
            }
        };
        match self.last_max {
            0 => steps.min(UNTRIED_STEP),
            _ => steps.max(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grow(bic: &mut Bic, round_trips: usize) -> Vec<u32> {
        let mut windows = Vec::new();
        for _ in 0..round_trips {
            for _ in 0..bic.window {
                bic.on_arrival(u32::MAX);
            }
            windows.push(bic.window);
        }
        windows
    }

    #[test]
    fn before_the_first_loss_it_doubles_in_each_round_trip() {
        let mut bic = Bic::new(2, 1 << 20);
        assert_eq!(grow(&mut bic, 5), [4, 8, 16, 32, 64]);
        assert_eq!(bic.highest_expected(100), 164);
    }

    #[test]
    fn loss_takes_a_fifth_and_growth_returns_fast_then_slowly() {
        let mut bic = Bic::new(1000, 1 << 20);
        assert!(bic.on_loss(500, 600, u32::MAX));
        assert_eq!(bic.window, 799);
        let windows = grow(&mut bic, 40);
        let steps: Vec<u32> = windows.windows(2).map(|pair| pair[1] - pair[0]).collect();
        // Steps of 16 far from the maximum, then half the distance each time, then steps beyond it.
        assert!(steps[..7].iter().all(|step| (15..=17).contains(step)), "{steps:?}");
        let near = windows.iter().position(|window| *window > 950).expect("it comes back");
        assert!(steps[near + 3] < 10, "{steps:?}");
        let slowest = steps.iter().min().expect("there are steps");
        assert!(*slowest <= 1, "{steps:?}");
    }

    #[test]
    fn the_losses_of_one_round_trip_are_one_loss() {
        let mut bic = Bic::new(100, 1 << 20);
        let mut reductions = u32::from(bic.on_loss(50, 60, u32::MAX));
        for seqno in 51..=160 {
            assert!(!bic.on_loss(seqno, 161, u32::MAX), "{seqno} was in flight");
        }
        reductions += u32::from(bic.on_loss(161, 162, u32::MAX));
        assert_eq!(reductions, 2);
    }

    #[test]
    fn loss_before_the_last_maximum_lowers_the_maximum() {
        let mut alone = Bic::new(1000, 1 << 20);
        alone.on_loss(0, 0, u32::MAX);
        assert_eq!(alone.last_max, 1000);
        alone.on_loss(5000, 5000, u32::MAX);
        assert_eq!((alone.last_max, alone.window), (719, 639));
    }

    #[test]
    fn unused_window_does_not_grow_and_loss_shrinks_the_used_part() {
        let mut bic = Bic::new(32, 1 << 20);
        (0..10_000).for_each(|_| bic.on_arrival(128));
        assert_eq!(bic.window, 256, "about half of the window is used");
        let bursts = (0..10_000).map(|place| 1 << (place % 8));
        let mut in_bursts = Bic::new(32, 1 << 20);
        bursts.for_each(|in_flight| in_bursts.on_arrival(in_flight));
        assert_eq!(in_bursts.window, 256, "the end of a burst counts");
        let mut wide = Bic::new(10_000, 1 << 20);
        assert!(wide.on_loss(50, 60, 128));
        assert_eq!(wide.window, 102);
    }

    #[test]
    fn it_stays_within_its_bounds() {
        let mut bic = Bic::new(0, 10);
        grow(&mut bic, 50);
        assert_eq!(bic.window, 10);
        for loss in 0..20 {
            bic.on_loss(loss * 1000, loss * 1000, u32::MAX);
        }
        assert_eq!(bic.window, 2);
        let mut one = Bic::new(5, 0);
        one.on_loss(0, 0, u32::MAX);
        assert_eq!(one.window, 1);
    }
}

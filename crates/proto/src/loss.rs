//! Loss models: which of the arriving datagrams a host loses.
//!
//! The papers of the lateral family drop at the receiving end host's buffer, data and repairs
//! alike. A model is asked once for each datagram and draws from its own seed.

use core::fmt;

use crate::Rng;

/// How losses are distributed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Loss {
    /// Nothing is lost.
    None,
    /// Each datagram is lost with this probability, independently.
    Uniform(f64),
    /// Losses come in bursts of exactly `length` consecutive datagrams; `rate` is the share of
    /// all datagrams that is lost in the long run.
    Burst {
        /// Share of datagrams lost, 0 to 1.
        rate: f64,
        /// Datagrams in a burst, at least 1.
        length: u32,
    },
}

impl Loss {
    /// The share of datagrams lost in the long run.
    pub fn rate(self) -> f64 {
        match self {
            Self::None => 0.0,
            Self::Uniform(rate) | Self::Burst { rate, .. } => rate,
        }
    }

    /// Whether the numbers make sense: a rate in `0..=1`, a burst of at least 1.
    pub fn is_valid(self) -> bool {
        let length = if let Self::Burst { length, .. } = self { length } else { 1 };
        (0.0..=1.0).contains(&self.rate()) && length > 0
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Uniform(rate) => write!(f, "{} %", rate * 100.0),
            Self::Burst { rate, length } => write!(f, "{} % in bursts of {length}", rate * 100.0),
        }
    }
}

/// Draws losses after a model.
#[derive(Debug)]
pub struct LossInjector {
    loss: Loss,
    rng: Rng,
    burst_left: u32,
    dropped: u64,
}

impl LossInjector {
    /// An injector of `loss` that draws from `seed`.
    pub fn new(loss: Loss, seed: u64) -> Self {
        Self { loss, rng: Rng::new(seed), burst_left: 0, dropped: 0 }
    }

    /// Whether the next datagram is lost.
    pub fn drops_next(&mut self) -> bool {
        let drops = match self.loss {
            Loss::None => false,
            Loss::Uniform(rate) => self.rng.chance(rate),
            Loss::Burst { rate, length } => self.in_burst(rate, length),
        };
        self.dropped += u64::from(drops);
        drops
    }

    /// How many datagrams were lost so far.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Between bursts each datagram starts one with the probability that makes `rate` the mean:
    /// of every `length + gap` datagrams `length` are lost, and the mean gap is `1/start`.
    fn in_burst(&mut self, rate: f64, length: u32) -> bool {
        if self.burst_left > 0 {
            self.burst_left -= 1;
            return true;
        }
        let start = rate / (rate + f64::from(length) * (1.0 - rate));
        let starts = rate > 0.0 && self.rng.chance(start);
        self.burst_left = if starts { length - 1 } else { 0 };
        starts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(loss: Loss) -> Vec<bool> {
        let mut injector = LossInjector::new(loss, 3);
        (0..400_000).map(|_| injector.drops_next()).collect()
    }

    #[test]
    fn each_model_loses_its_rate_in_the_long_run() {
        for loss in [Loss::Uniform(0.01), Loss::Burst { rate: 0.01, length: 20 }] {
            let lost = history(loss).iter().filter(|lost| **lost).count();
            assert!((3_500..4_500).contains(&lost), "{loss}: {lost} of 400000");
        }
        assert!(history(Loss::None).iter().all(|lost| !lost));
        assert!(history(Loss::Uniform(1.0)).iter().all(|lost| *lost));
        assert!(history(Loss::Burst { rate: 1.0, length: 3 }).iter().all(|lost| *lost));
    }

    #[test]
    fn bursts_have_whole_multiples_of_their_length() {
        let history = history(Loss::Burst { rate: 0.01, length: 20 });
        let runs = history[..399_000].chunk_by(|a, b| a == b).filter(|run| run[0]);
        assert!(runs.map(<[bool]>::len).all(|length| length % 20 == 0));
    }
}

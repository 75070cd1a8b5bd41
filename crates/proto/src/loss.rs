//! Loss models, which determine which incoming datagrams a host loses.
//!
//! The papers of the lateral family drop data and repairs alike, in the buffer of the receiving
//! host. A model is queried once for each datagram and draws from its own seed.

use core::fmt;

use crate::Rng;

/// Model of datagram losses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Loss {
    /// No losses.
    None,
    /// Each datagram is lost independently with this probability.
    Uniform(f64),
    /// Losses occur in bursts of exactly `length` consecutive datagrams.
    Burst {
        /// Long-term share of datagrams that are lost, 0 to 1.
        rate: f64,
        /// Number of datagrams per burst, at least 1.
        length: u32,
    },
    /// Losses occur in bursts of random length. The model is a Markov chain with two states, and
    /// every datagram is lost in one of them (Gilbert's model, the "Markov" loss of the slides).
    Markov {
        /// Long-term share of datagrams that are lost, 0 to 1.
        rate: f64,
        /// Mean number of datagrams per burst, at least 1.
        mean_burst: f64,
    },
    /// A Markov chain with a good and a bad state, which have different loss rates
    /// (Gilbert-Elliott).
    ///
    /// The chain advances once for each datagram, before the datagram is lost or kept.
    GilbertElliott {
        /// Probability of changing from the good to the bad state.
        to_bad: f64,
        /// Probability of changing from the bad to the good state.
        to_good: f64,
        /// Share of datagrams lost in the good state.
        loss_good: f64,
        /// Share of datagrams lost in the bad state.
        loss_bad: f64,
    },
}

impl Loss {
    /// Returns the long-term share of datagrams that are lost.
    pub fn rate(self) -> f64 {
        match self {
            Self::None => 0.0,
            Self::Uniform(rate) | Self::Burst { rate, .. } | Self::Markov { rate, .. } => rate,
            Self::GilbertElliott { to_bad, to_good, loss_good, loss_bad } => {
                let moves = to_bad + to_good;
                let bad = if moves > 0.0 { to_bad / moves } else { 0.0 };
                bad * loss_bad + (1.0 - bad) * loss_good
            }
        }
    }

    /// Returns `true` if all parameters are valid. Probabilities and rates must be in `0..=1`,
    /// bursts at least 1 datagram long, and the rate possible with the mean burst length.
    pub fn is_valid(self) -> bool {
        let is_share = |share: f64| (0.0..=1.0).contains(&share);
        match self {
            Self::None => true,
            Self::Uniform(rate) => is_share(rate),
            Self::Burst { rate, length } => is_share(rate) && length > 0,
            Self::Markov { rate, mean_burst } => {
                let is_burst = mean_burst.is_finite() && mean_burst >= 1.0;
                is_share(rate) && is_burst && is_share(Self::into_burst(rate, mean_burst))
            }
            Self::GilbertElliott { to_bad, to_good, loss_good, loss_bad } => {
                [to_bad, to_good, loss_good, loss_bad].into_iter().all(is_share)
            }
        }
    }

    /// Returns the probability that a burst of this mean length starts after a datagram that was
    /// not lost.
    ///
    /// A share `rate` is lost if the mean gap is `mean (1 - rate) / rate`.
    fn into_burst(rate: f64, mean_burst: f64) -> f64 {
        if rate >= 1.0 { 1.0 } else { rate / (mean_burst * (1.0 - rate)) }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Uniform(rate) => write!(f, "{} %", rate * 100.0),
            Self::Burst { rate, length } => write!(f, "{} % in bursts of {length}", rate * 100.0),
            Self::Markov { rate, mean_burst } => {
                write!(f, "{} % in bursts of {mean_burst} on average", rate * 100.0)
            }
            Self::GilbertElliott { .. } => {
                write!(f, "{} % (Gilbert-Elliott model)", self.rate() * 100.0)
            }
        }
    }
}

/// Generator of losses that follow a model.
#[derive(Debug)]
pub struct LossInjector {
    loss: Loss,
    rng: Rng,
    burst_left: u32,
    is_bad: bool,
    dropped: u64,
}

impl LossInjector {
    /// Creates an injector for the model `loss` that draws from `seed`.
    pub fn new(loss: Loss, seed: u64) -> Self {
        Self { loss, rng: Rng::new(seed), burst_left: 0, is_bad: false, dropped: 0 }
    }

    /// Advances the model by one datagram. Returns `true` if this datagram is lost.
    pub fn drops_next(&mut self) -> bool {
        let drops = match self.loss {
            Loss::None => false,
            Loss::Uniform(rate) => self.rng.chance(rate),
            Loss::Burst { rate, length } => self.in_burst(rate, length),
            Loss::Markov { rate, mean_burst } => {
                let to_good = if rate >= 1.0 { 0.0 } else { 1.0 / mean_burst };
                self.turns(Loss::into_burst(rate, mean_burst), to_good);
                self.is_bad
            }
            Loss::GilbertElliott { to_bad, to_good, loss_good, loss_bad } => {
                self.turns(to_bad, to_good);
                self.rng.chance(if self.is_bad { loss_bad } else { loss_good })
            }
        };
        self.dropped += u64::from(drops);
        drops
    }

    /// Returns the number of datagrams lost so far.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    fn turns(&mut self, to_bad: f64, to_good: f64) {
        let moves = self.rng.chance(if self.is_bad { to_good } else { to_bad });
        self.is_bad ^= moves;
    }

    /// Returns `true` if the next datagram is in a burst. The mean gap is `1 / start - 1`
    /// datagrams, so `length` of every `length + gap` datagrams are lost.
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
        let models = [
            Loss::Uniform(0.01),
            Loss::Burst { rate: 0.01, length: 20 },
            Loss::Markov { rate: 0.01, mean_burst: 4.0 },
            Loss::GilbertElliott { to_bad: 0.01, to_good: 0.3, loss_good: 0.001, loss_bad: 0.28 },
        ];
        for loss in models {
            assert!(loss.is_valid() && (loss.rate() - 0.01).abs() < 1e-4, "{loss}");
            let lost = history(loss).iter().filter(|lost| **lost).count();
            assert!((3_500..4_500).contains(&lost), "{loss}: {lost} of 400000");
        }
        assert!(history(Loss::None).iter().all(|lost| !lost));
        assert!(history(Loss::Uniform(1.0)).iter().all(|lost| *lost));
        assert!(history(Loss::Burst { rate: 1.0, length: 3 }).iter().all(|lost| *lost));
    }

    #[test]
    fn bursts_of_the_markov_chain_have_their_mean_length() {
        let history = history(Loss::Markov { rate: 0.05, mean_burst: 4.0 });
        let bursts: Vec<usize> =
            history.chunk_by(|a, b| a == b).filter(|run| run[0]).map(<[bool]>::len).collect();
        let mean = bursts.iter().sum::<usize>() as f64 / bursts.len() as f64;
        assert!((3.8..4.2).contains(&mean), "{mean}");
        assert!(!Loss::Markov { rate: 0.9, mean_burst: 2.0 }.is_valid(), "no gap is that short");
    }

    #[test]
    fn bursts_have_whole_multiples_of_their_length() {
        let history = history(Loss::Burst { rate: 0.01, length: 20 });
        let runs = history[..399_000].chunk_by(|a, b| a == b).filter(|run| run[0]);
        assert!(runs.map(<[bool]>::len).all(|length| length % 20 == 0));
    }
}

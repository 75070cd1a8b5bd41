use std::fmt;
use std::time::Duration;

use crate::error::Error;

/// Losses of UDP datagrams over IPv4 on receipt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Loss {
    /// No losses.
    None,
    /// Each datagram is lost independently.
    Independent {
        /// Probability of a loss: 0, or from 10⁻⁸ to 1. It is accurate to 2 % of its value.
        probability: f64,
    },
    /// The first `length` of every `period` datagrams are lost.
    Bursts {
        /// Number of consecutive datagrams that are lost.
        length: u32,
        /// Number of datagrams from one burst to the next.
        period: u32,
    },
    /// All datagrams are lost for `length` in every `period`. A thread of this process drives it.
    Outages {
        /// Duration of an outage. Those of a few milliseconds are accurate to 0.5 ms.
        length: Duration,
        /// Time from the start of one outage to the start of the next.
        period: Duration,
    },
    /// Like [`Loss::Outages`], with random durations: the Gilbert-Elliott model in time. Both
    /// states last for exponentially distributed times.
    GilbertElliott {
        /// Mean duration of the good state, in which nothing is lost.
        good: Duration,
        /// Mean duration of the bad state, in which everything is lost.
        bad: Duration,
        /// Seed of the durations.
        seed: u64,
    },
}

impl Loss {
    /// Returns the long-term share of datagrams that are lost, 0 to 1.
    pub fn rate(&self) -> f64 {
        match *self {
            Self::None => 0.0,
            Self::Independent { probability } => probability,
            Self::Bursts { length, period } => f64::from(length) / f64::from(period),
            Self::Outages { length, period } => length.as_secs_f64() / period.as_secs_f64(),
            Self::GilbertElliott { good, bad, .. } => {
                bad.as_secs_f64() / (good + bad).as_secs_f64()
            }
        }
    }

    /// Returns `true` if the losses last only as long as the process that set them.
    pub fn is_driven(&self) -> bool {
        matches!(self, Self::Outages { .. } | Self::GilbertElliott { .. })
    }

    /// Checks the parameters.
    pub fn validate(&self) -> Result<(), Error> {
        let fix = match *self {
            Self::Independent { probability } if !(0.0..=1.0).contains(&probability) => {
                "use a probability from 0 to 1"
            }
            Self::Independent { probability } if probability > 0.0 && probability < LEAST => {
                "use 0, or a probability of 0.00000001 or more"
            }
            Self::Bursts { length, period } if length > period || period == 0 => {
                "use a burst that is at most as long as its period, and a period above 0"
            }
            Self::Outages { length, period } if length >= period => {
                "use outages that are shorter than their period"
            }
            Self::GilbertElliott { good, bad, .. } if good.is_zero() || bad.is_zero() => {
                "use mean durations above 0"
            }
            _ => return Ok(()),
        };
        Err(Error::new(format!("losses of {self} are not possible"), fix))
    }

    /// Returns the condition of nft under which a datagram is lost. It is empty if all are, and
    /// `None` if none is.
    pub(crate) fn condition(&self) -> Option<String> {
        match *self {
            Self::Independent { probability } => {
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                let threshold = (probability * f64::from(u32::MAX)).round() as u32;
                match threshold {
                    0 => None,
                    u32::MAX => Some(String::new()),
                    some => Some(format!("numgen random mod {} < {some}", u32::MAX)),
                }
            }
            Self::Bursts { length, period } => match length {
                0 => None,
                all if all == period => Some(String::new()),
                some => Some(format!("numgen inc mod {period} < {some}")),
            },
            Self::None | Self::Outages { .. } | Self::GilbertElliott { .. } => None,
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Independent { probability } => write!(f, "{} %", probability * 100.0),
            Self::Bursts { length, period } => write!(f, "{length} of {period} datagrams"),
            Self::Outages { length, period } => write!(f, "{length:?} in {period:?}"),
            Self::GilbertElliott { good, bad, .. } => {
                write!(f, "{bad:?} after {good:?} on average")
            }
        }
    }
}

/// Smaller probabilities would be inaccurate: the largest modulus of nft has 32 bits.
const LEAST: f64 = 1e-8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_out_of_range_are_refused() {
        let second = Duration::from_secs(1);
        for loss in [
            Loss::Independent { probability: 1.5 },
            Loss::Independent { probability: f64::NAN },
            Loss::Independent { probability: 9e-9 },
            Loss::Bursts { length: 11, period: 10 },
            Loss::Bursts { length: 0, period: 0 },
            Loss::Outages { length: second, period: second },
            Loss::GilbertElliott { good: Duration::ZERO, bad: second, seed: 1 },
        ] {
            assert!(loss.validate().is_err(), "{loss}");
        }
        assert_eq!(Loss::Bursts { length: 10, period: 10 }.validate(), Ok(()));
    }

    #[test]
    fn smallest_probability_is_not_rounded_to_none() {
        for (probability, threshold) in [(1e-8, 43), (1e-7, 429), (0.5, 2_147_483_648_u32)] {
            let loss = Loss::Independent { probability };
            assert_eq!(loss.validate(), Ok(()));
            let condition = format!("numgen random mod 4294967295 < {threshold}");
            assert_eq!(loss.condition(), Some(condition));
        }
        assert_eq!(Loss::Independent { probability: 0.0 }.condition(), None);
        assert_eq!(Loss::Independent { probability: 1.0 }.condition(), Some(String::new()));
    }

    #[test]
    fn rates_are_the_share_of_lost_datagrams_or_time() {
        let ms = Duration::from_millis;
        assert!((Loss::Bursts { length: 5, period: 100 }.rate() - 0.05).abs() < 1e-9);
        assert!((Loss::Outages { length: ms(20), period: ms(1000) }.rate() - 0.02).abs() < 1e-9);
        let chain = Loss::GilbertElliott { good: ms(99), bad: ms(1), seed: 1 };
        assert!((chain.rate() - 0.01).abs() < 1e-9);
    }
}

//! What becomes of a receiver that holds the others up.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

/// What becomes of a receiver that takes less than the others could get.
///
/// The sender measures how long it had something to send and could not, because one receiver
/// expected no more while most of the others did. Of a second, that is the share by which the
/// receiver slows the others down. Text: `wait`, `leave-behind`, or a percentage such as `50%`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Slowest {
    /// The others wait for it, whatever it takes. It is named.
    Wait,
    /// The others continue without it once it has slowed them down by a tenth, over four seconds:
    /// they keep 90 % of their rate.
    LeaveBehind,
    /// The others continue without it if it gets less than this share of what the median receiver
    /// could get: above 0, below 1.
    Share(f64),
}

impl Slowest {
    /// The least share of the median's rate with which a receiver is waited for.
    pub(super) fn least_share(self) -> f64 {
        match self {
            Self::Wait => 0.0,
            Self::LeaveBehind => LEAVE_BEHIND,
            Self::Share(share) => share,
        }
    }

    /// The time over which waits for one receiver are added up. One wait alone, however long, is
    /// never too much.
    pub(super) fn span(self) -> Duration {
        let rest = (1.0 - self.least_share()).max(f64::MIN_POSITIVE);
        let span = LONGEST_WAIT.as_secs_f64() / rest;
        Duration::from_secs_f64(span.clamp(LEAST_SPAN, MOST_SPAN))
    }

    /// How long the others may wait for one receiver in that time.
    pub(super) fn most_waits(self) -> Duration {
        self.span().mul_f64(1.0 - self.least_share())
    }

    /// Returns `true` if the share is one.
    pub(super) fn is_valid(self) -> bool {
        match self {
            Self::Wait | Self::LeaveBehind => true,
            Self::Share(share) => share > 0.0 && share < 1.0,
        }
    }
}

impl Default for Slowest {
    /// Half of the median's rate.
    fn default() -> Self {
        Self::Share(0.5)
    }
}

/// A text that is no [`Slowest`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is invalid: expected wait, leave-behind, or a percentage from 1% to 99%")]
pub struct NotSlowest(String);

impl FromStr for Slowest {
    type Err = NotSlowest;

    fn from_str(text: &str) -> Result<Self, NotSlowest> {
        let invalid = || NotSlowest(text.to_owned());
        match text {
            "wait" => Ok(Self::Wait),
            "leave-behind" => Ok(Self::LeaveBehind),
            _ => {
                let percent = text.strip_suffix('%').ok_or_else(invalid)?;
                let percent: u8 = percent.trim().parse().map_err(|_| invalid())?;
                let is_share = (1..=99).contains(&percent);
                is_share.then(|| Self::Share(f64::from(percent) / 100.0)).ok_or_else(invalid)
            }
        }
    }
}

impl fmt::Display for Slowest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wait => f.write_str("wait"),
            Self::LeaveBehind => f.write_str("leave-behind"),
            Self::Share(share) => write!(f, "{:.0}%", share * 100.0),
        }
    }
}

/// With [`Slowest::LeaveBehind`] the others keep at least this share of their rate.
const LEAVE_BEHIND: f64 = 0.9;
/// One wait counts for so long at most. Standing still for longer is a matter of silence, or of
/// `slow_after`, and not of a receiver's pace.
pub(super) const LONGEST_WAIT: Duration = Duration::from_millis(400);
/// The bounds of [`Slowest::span`], in seconds.
const LEAST_SPAN: f64 = 1.0;
const MOST_SPAN: f64 = 10.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_add_up_over_the_longer_the_less_is_allowed() {
        let spans = [
            (Slowest::Wait, 1000, 1000),
            (Slowest::Share(0.5), 1000, 500),
            (Slowest::LeaveBehind, 4000, 400),
            (Slowest::Share(0.99), 10_000, 100),
        ];
        for (policy, span, most) in spans {
            assert_eq!(policy.span().as_millis(), span, "{policy}");
            assert_eq!(policy.most_waits().as_millis(), most, "{policy}");
        }
    }

    #[test]
    fn policies_are_read_as_they_are_written() {
        for policy in [Slowest::Wait, Slowest::LeaveBehind, Slowest::Share(0.5)] {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        for text in ["", "0%", "100%", "50", "-5%", "1.5%", "waits"] {
            assert_eq!(text.parse::<Slowest>(), Err(NotSlowest(text.to_owned())));
        }
    }
}

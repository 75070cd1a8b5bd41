use core::fmt;
use core::str::FromStr;
use core::time::Duration;

/// Policy for a receiver that gets less data than the other receivers could.
///
/// The sender measures the time in which it had data to send but could not send it, because a
/// receiver expected no more while at least half of all receivers did. The fraction of time that is
/// spent in this way is the share by which the receiver slows down the others. The text form is
/// `wait`, `leave-behind`, or a percentage such as `50%`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Slowest {
    /// The other receivers wait for the receiver as long as it is heard. It is reported.
    Wait,
    /// The receiver is evicted once the others have waited for it for more than 10 % of the last 4
    /// seconds. They keep 90 % of their rate.
    LeaveBehind,
    /// The receiver is evicted if its rate is less than this share of the rate that the median
    /// receiver could reach. The share must be above 0 and below 1.
    Share(f64),
}

impl Slowest {
    pub(super) fn least_share(self) -> f64 {
        match self {
            Self::Wait => 0.0,
            Self::LeaveBehind => LEAVE_BEHIND,
            Self::Share(share) => share,
        }
    }

    /// Returns the time over which the waits for one receiver are summed. With shares up to 96 %, a
    /// single wait never exceeds the limit, regardless of its length.
    pub(super) fn span(self) -> Duration {
        let rest = (1.0 - self.least_share()).max(f64::MIN_POSITIVE);
        let span = LONGEST_WAIT.as_secs_f64() / rest;
        Duration::from_secs_f64(span.clamp(LEAST_SPAN, MOST_SPAN))
    }

    pub(super) fn most_waits(self) -> Duration {
        self.span().mul_f64(1.0 - self.least_share())
    }

    pub(super) fn is_valid(self) -> bool {
        match self {
            Self::Wait | Self::LeaveBehind => true,
            Self::Share(share) => share > 0.0 && share < 1.0,
        }
    }
}

impl Default for Slowest {
    fn default() -> Self {
        Self::Share(0.5)
    }
}

/// Error for a text that is not a valid [`Slowest`].
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

/// Minimum share of their rate that the other receivers keep with [`Slowest::LeaveBehind`].
const LEAVE_BEHIND: f64 = 0.9;
/// Maximum charge for one wait. A longer wait is handled as silence or by `slow_after`, and says
/// nothing about a receiver's rate.
pub(super) const LONGEST_WAIT: Duration = Duration::from_millis(400);
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

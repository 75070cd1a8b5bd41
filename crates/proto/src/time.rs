use core::fmt;
use core::ops::Add;
use core::time::Duration;

/// Nanoseconds since the driver's epoch.
///
/// A driver on real sockets counts from the Unix epoch (read once, then advanced by the monotonic
/// clock), so that delays between hosts with synchronized clocks can be measured. A simulator
/// counts from its start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub struct Time(pub u64);

impl Time {
    /// The driver's epoch.
    pub const ZERO: Self = Self(0);
    /// The latest time, used for "never".
    pub const MAX: Self = Self(u64::MAX);

    /// Returns the time elapsed since `earlier`, or zero if `earlier` is later than this time.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Returns the time `span` before this one, or the epoch if that is later.
    pub fn before(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(span)))
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(nanos(span)))
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

/// Returns `span` in nanoseconds, at most `u64::MAX` (584 years).
fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_instead_of_wrapping() {
        assert_eq!(Time::MAX + Duration::from_secs(1), Time::MAX);
        assert_eq!(Time(5).since(Time(7)), Duration::ZERO);
        assert_eq!(Time(5).before(Duration::from_secs(1)), Time::ZERO);
        assert_eq!((Time(5) + Duration::from_nanos(4)).since(Time(5)), Duration::from_nanos(4));
    }
}

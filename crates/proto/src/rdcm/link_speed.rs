use core::fmt;
use core::str::FromStr;

/// Speed of a link, in bits per second. It is at least 1.
///
/// The text form is a number with a unit: `1 Gbit/s`, `40Gbit/s` or `100 Mbit/s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkSpeed(u64);

/// The error returned when a text is not the speed of a link.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("link speed '{0}' is invalid: expected a number with a unit, such as 10 Gbit/s")]
pub struct LinkSpeedError(String);

impl LinkSpeed {
    /// 1 Gbit/s, the speed of the links of BCube, of a fat tree, and of the hosts of VL2.
    pub const GIGABIT: Self = Self(1_000_000_000);
    /// 10 Gbit/s, the speed of the links between switches of VL2.
    pub const TEN_GIGABIT: Self = Self(10_000_000_000);

    /// Creates a speed in bits per second, or returns `None` for 0.
    pub const fn of_bits_per_second(bits: u64) -> Option<Self> {
        if bits == 0 { None } else { Some(Self(bits)) }
    }

    /// Returns the speed in bits per second.
    pub const fn bits_per_second(self) -> u64 {
        self.0
    }

    /// Returns `bits_per_second` multiplied by the ratio of this speed to `slowest`.
    pub fn scaled(self, slowest: Self, bits_per_second: u64) -> u64 {
        let scaled = u128::from(bits_per_second) * u128::from(self.0) / u128::from(slowest.0);
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }
}

impl fmt::Display for LinkSpeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = UNITS
            .into_iter()
            .find(|(unit, _)| self.0.is_multiple_of(*unit))
            .unwrap_or((1, "bit/s"));
        write!(f, "{} {name}", self.0 / unit)
    }
}

impl FromStr for LinkSpeed {
    type Err = LinkSpeedError;

    fn from_str(text: &str) -> Result<Self, LinkSpeedError> {
        let parsed = UNITS.into_iter().find_map(|(unit, name)| {
            let number: f64 = text.strip_suffix(name)?.trim_end().parse().ok()?;
            let bits = number * unit as f64;
            (1.0..=MAX_BITS).contains(&bits).then_some(Self(bits.round() as u64))
        });
        parsed.ok_or_else(|| LinkSpeedError(text.to_owned()))
    }
}

/// Units of the text form, the largest first. Each name is a suffix of the last one.
const UNITS: [(u64, &str); 5] = [
    (1_000_000_000_000, "Tbit/s"),
    (1_000_000_000, "Gbit/s"),
    (1_000_000, "Mbit/s"),
    (1_000, "kbit/s"),
    (1, "bit/s"),
];
const MAX_BITS: f64 = 1e18;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speed_is_parsed_with_its_unit_and_printed_in_the_largest() {
        for (text, bits, printed) in [
            ("10 Gbit/s", 10_000_000_000, "10 Gbit/s"),
            ("2.5Gbit/s", 2_500_000_000, "2500 Mbit/s"),
            ("100 Mbit/s", 100_000_000, "100 Mbit/s"),
            ("1000 Mbit/s", 1_000_000_000, "1 Gbit/s"),
            ("56 kbit/s", 56_000, "56 kbit/s"),
            ("7 bit/s", 7, "7 bit/s"),
        ] {
            let speed: LinkSpeed = text.parse().expect("a speed");
            assert_eq!((speed.bits_per_second(), speed.to_string().as_str()), (bits, printed));
        }
        for bad in
            ["", "10", "Gbit/s", "0 Gbit/s", "-1 Gbit/s", "nan Gbit/s", "9e30 Tbit/s", "1 GB/s"]
        {
            let error = bad.parse::<LinkSpeed>().expect_err(bad);
            assert!(error.to_string().contains("10 Gbit/s"), "{error}");
        }
    }
}

//! Parsers of values with units: `1%`, `200/s`, `10ms`, `64MiB`, `8,5`.
//!
//! The command line and the plan files share them.

use std::fmt;
use std::time::Duration;

use carom_proto::{GroupSettings, RateOfFire};

/// The reason why a value with a unit is invalid.
#[derive(Debug, PartialEq, Eq)]
pub struct UnitError {
    /// Description of the error, in one line.
    pub cause: String,
    /// Suggested fix, in one line.
    pub fix: String,
}

impl fmt::Display for UnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.cause)
    }
}

impl std::error::Error for UnitError {}

/// Parses a share from 0 to 1: `1%` or `0.01`.
pub fn share(text: &str) -> Result<f64, UnitError> {
    let fix = "write a share such as 1% or 0.01";
    let (number, unit) = number_and_unit(text, fix)?;
    let share = match unit {
        "%" => number / 100.0,
        "" => number,
        _ => return Err(unknown_unit(text, unit, fix)),
    };
    if share < 0.0 {
        return Err(wrong(format!("share '{text}' is negative"), fix));
    }
    if share > 1.0 {
        let fix = format!("write {0}% for {0} percent", number.min(100.0));
        return Err(wrong(format!("share '{text}' is too large: expected at most 100%"), &fix));
    }
    Ok(share)
}

/// Parses a rate per second, above 0 and at most 100 million: `200/s`, `20k/s`, `5/ms` or `200`.
pub fn rate(text: &str) -> Result<f64, UnitError> {
    let fix = "write a rate above 0, such as 200/s or 20k/s";
    let (count, period) = text.split_once('/').unwrap_or((text, "s"));
    let (number, unit) = number_and_unit(count, fix)?;
    let factor = match unit {
        "" => 1.0,
        "k" => 1e3,
        "M" => 1e6,
        _ => return Err(unknown_unit(text, unit, fix)),
    };
    let per_second = match period {
        "s" => 1.0,
        "ms" => 1e3,
        "min" => 1.0 / 60.0,
        _ => return Err(unknown_unit(text, period, fix)),
    };
    let rate = number * factor * per_second;
    if rate <= 0.0 {
        return Err(wrong(format!("rate '{text}' is not above 0"), fix));
    }
    if rate > MAX_RATE {
        return Err(wrong(format!("rate '{text}' exceeds {MAX_RATE} per second"), fix));
    }
    Ok(rate)
}

/// Parses a duration with its unit, at most a year: `10ms`, `1.5s`, `2min`.
pub fn duration(text: &str) -> Result<Duration, UnitError> {
    duration_in(text, None)
}

/// Parses a duration of at most a year. Without a unit it is in seconds: `8`, `8s`, `500ms`.
pub fn seconds(text: &str) -> Result<Duration, UnitError> {
    duration_in(text, Some(1.0))
}

/// Parses a size, a whole number of bytes of at most 1 TiB: `1024`, `1KiB`, `64MiB`, `1kB`.
pub fn bytes(text: &str) -> Result<usize, UnitError> {
    let fix = "write a size such as 1024, 1KiB or 64MiB";
    let (number, unit) = number_and_unit(text, fix)?;
    let factor = match unit {
        "" | "B" => 1.0,
        "kB" => 1e3,
        "MB" => 1e6,
        "KiB" => 1024.0,
        "MiB" => 1024.0 * 1024.0,
        "GiB" => 1024.0 * 1024.0 * 1024.0,
        _ => return Err(unknown_unit(text, unit, fix)),
    };
    let bytes = number * factor;
    if bytes < 0.0 || bytes.fract() != 0.0 || bytes > MAX_BYTES {
        return Err(wrong(
            format!("size '{text}' is not a whole number of bytes up to 1 TiB"),
            fix,
        ));
    }
    Ok(bytes as usize)
}

/// The upper limit of a sending rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bandwidth {
    /// No fixed limit: as fast as the receivers and the network allow.
    Auto,
    /// Limit in bytes per second.
    BytesPerSecond(u64),
}

/// Parses a bandwidth per second from 80 kbit to 8000 Gbit: `500Mbit`, `1Gbit`, `60MB`, or `auto`.
pub fn bandwidth(text: &str) -> Result<Bandwidth, UnitError> {
    let fix = "write a bandwidth per second, such as 500Mbit, 1Gbit or 60MB, or auto";
    if text == "auto" {
        return Ok(Bandwidth::Auto);
    }
    let (number, unit) = number_and_unit(text.trim_end_matches("/s"), fix)?;
    let factor = match unit {
        "kbit" => 1e3 / 8.0,
        "Mbit" => 1e6 / 8.0,
        "Gbit" => 1e9 / 8.0,
        "kB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "KiB" => 1024.0,
        "MiB" => 1024.0 * 1024.0,
        "GiB" => 1024.0 * 1024.0 * 1024.0,
        _ => return Err(unknown_unit(text, unit, fix)),
    };
    let bytes = number * factor;
    if !(LEAST_BANDWIDTH..=MAX_BYTES).contains(&bytes) {
        return Err(wrong(format!("bandwidth '{text}' is not between 80kbit and 8000Gbit"), fix));
    }
    Ok(Bandwidth::BytesPerSecond(bytes as u64))
}

/// Parses the name of a group, which must not be blank, too long, or contain control characters.
pub fn name(text: &str) -> Result<String, UnitError> {
    if text.trim().is_empty() {
        return Err(wrong("the group name is blank".to_owned(), "write a name such as numbers"));
    }
    let fix = format!(
        "write a name of 1 to {} bytes without control characters",
        GroupSettings::MAX_NAME_BYTES
    );
    GroupSettings::check_name(text).map_err(|error| wrong(error.to_string(), &fix))?;
    Ok(text.to_owned())
}

/// Parses a rate-of-fire (r, c), with r from 1 to 32: `8,5` or `(8, 5)`.
pub fn rate_of_fire(text: &str) -> Result<RateOfFire, UnitError> {
    let fix = "write r,c such as 8,5, with r from 1 to 32";
    let numbers = text.trim_matches(['(', ')']).split_once(',');
    let parsed = numbers.and_then(|(r, c)| Some((r.trim().parse().ok()?, c.trim().parse().ok()?)));
    let Some((r, c)) = parsed else {
        return Err(wrong(format!("'{text}' is not a rate-of-fire"), fix));
    };
    let rate = RateOfFire::new(r, c);
    rate.validate().map_err(|error| wrong(error.to_string(), fix))?;
    Ok(rate)
}

fn duration_in(text: &str, plain: Option<f64>) -> Result<Duration, UnitError> {
    let fix = "write a time such as 10ms, 1.5s or 2min";
    let (number, unit) = number_and_unit(text, fix)?;
    let seconds = match (unit, plain) {
        ("ns", _) => 1e-9,
        ("us" | "µs", _) => 1e-6,
        ("ms", _) => 1e-3,
        ("s", _) => 1.0,
        ("min", _) => 60.0,
        ("h", _) => 3600.0,
        ("", Some(plain)) => plain,
        ("", None) => return Err(wrong(format!("'{text}' has no unit"), fix)),
        _ => return Err(unknown_unit(text, unit, fix)),
    };
    if number < 0.0 {
        return Err(wrong(format!("time '{text}' is negative"), fix));
    }
    if number * seconds > MAX_SECONDS {
        return Err(wrong(format!("time '{text}' exceeds one year"), fix));
    }
    Ok(Duration::from_secs_f64(number * seconds))
}

fn number_and_unit<'a>(text: &'a str, fix: &str) -> Result<(f64, &'a str), UnitError> {
    let of_number = |letter: char| letter.is_ascii_digit() || matches!(letter, '.' | '-' | '+');
    let end = text.find(|letter| !of_number(letter)).unwrap_or(text.len());
    let number: f64 = text[..end]
        .parse()
        .map_err(|_| wrong(format!("'{text}' does not begin with a number"), fix))?;
    Ok((number, text[end..].trim()))
}

fn unknown_unit(text: &str, unit: &str, fix: &str) -> UnitError {
    wrong(format!("unknown unit '{unit}' in '{text}'"), fix)
}

fn wrong(cause: String, fix: &str) -> UnitError {
    UnitError { cause, fix: fix.to_owned() }
}

const MAX_RATE: f64 = 1e8;
const LEAST_BANDWIDTH: f64 = 1e4;
const MAX_BYTES: f64 = (1_u64 << 40) as f64;
const MAX_SECONDS: f64 = 366.0 * 86_400.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_people_write_them() {
        assert_eq!(share("1%"), Ok(0.01));
        assert_eq!(share("0.01"), Ok(0.01));
        assert_eq!(share("100%"), Ok(1.0));
        assert_eq!(rate("200/s"), Ok(200.0));
        assert_eq!(rate("20k/s"), Ok(20_000.0));
        assert_eq!(rate("5/ms"), Ok(5_000.0));
        assert_eq!(rate("60/min"), Ok(1.0));
        assert_eq!(rate("0.5"), Ok(0.5));
        assert_eq!(duration("10ms"), Ok(Duration::from_millis(10)));
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1_500)));
        assert_eq!(seconds("8"), Ok(Duration::from_secs(8)));
        assert_eq!(seconds("2min"), Ok(Duration::from_secs(120)));
        assert_eq!(bytes("64MiB"), Ok(64 << 20));
        assert_eq!(bytes("1KiB"), Ok(1024));
        assert_eq!(bytes("1000"), bytes("1kB"));
        assert_eq!(rate_of_fire("8,5"), Ok(RateOfFire::new(8, 5)));
        assert_eq!(rate_of_fire("(8, 5)"), Ok(RateOfFire::new(8, 5)));
    }

    #[test]
    fn nonsense_is_refused_with_the_value_in_the_cause() {
        let refused = [
            share("-1%").err(),
            share("5").err(),
            share("1x").err(),
            rate("-5/s").err(),
            rate("0/s").err(),
            rate("5/year").err(),
            rate("fast").err(),
            rate("--json").err(),
            duration("-1s").err(),
            duration("5").err(),
            duration("5 parsecs").err(),
            duration("9999999h").err(),
            bytes("0.5").err(),
            bytes("-1").err(),
            bytes("1XB").err(),
            rate_of_fire("8").err(),
            rate_of_fire("-1,5").err(),
        ];
        let given = "-1% 5 1x -5/s 0/s 5/year fast --json -1s 5 parsecs 9999999h 0.5 -1 1XB 8 -1,5";
        for error in refused {
            let error = error.expect("every value is invalid");
            let quoted = error.cause.split('\'').find(|part| given.contains(part));
            assert!(quoted.is_some(), "{error:?}");
            assert!(error.fix.starts_with("write "), "{error:?}");
        }
    }

    #[test]
    fn bandwidth_is_bits_or_bytes_per_second_or_automatic() {
        assert_eq!(bandwidth("auto"), Ok(Bandwidth::Auto));
        assert_eq!(bandwidth("1Gbit"), Ok(Bandwidth::BytesPerSecond(125_000_000)));
        assert_eq!(bandwidth("1Gbit/s"), bandwidth("125MB"));
        for nonsense in ["", "fast", "1", "-1Gbit", "0Mbit", "1kbit", "9999999GB", "1Gb"] {
            let error = bandwidth(nonsense).expect_err(nonsense);
            assert!(error.fix.starts_with("write "), "{error:?}");
        }
    }

    #[test]
    fn r_must_be_within_its_bounds() {
        assert!(rate_of_fire("0,5").is_err());
        assert!(rate_of_fire("33,5").is_err());
        assert_eq!(rate_of_fire("32,0"), Ok(RateOfFire::new(32, 0)));
    }

    #[test]
    fn a_group_without_a_name_is_refused() {
        assert_eq!(name("prices.eu").as_deref(), Ok("prices.eu"));
        assert!(["", " ", "\n"].iter().all(|text| name(text).is_err()));
    }
}

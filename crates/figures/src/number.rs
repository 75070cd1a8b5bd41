/// Formats a number to six significant digits. Returns an empty string if it is not finite.
pub fn significant(number: f64) -> String {
    if !number.is_finite() {
        return String::new();
    }
    if number == 0.0 {
        return "0".to_owned();
    }
    let rounded: f64 = format!("{number:.5e}").parse().expect("a formatted number is valid");
    rounded.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_with_six_digits_and_no_more() {
        assert_eq!(significant(98.123_456_789), "98.1235");
        assert_eq!(significant(0.000_123_456_78), "0.000123457");
        assert_eq!(significant(1_234_567.0), "1234570");
        assert_eq!(significant(5.0), "5");
        assert_eq!(significant(-0.0), "0");
        assert_eq!(significant(f64::NAN), "");
    }
}

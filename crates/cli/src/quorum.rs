//! Flags for the partition of a ring that continues after a fault: `--quorum` and `--quorum-of`.

use carom::Partition;
use carom_terminal::units::UnitError;

/// Parses the value of `--quorum`: `majority`, `all`, or a number of members.
///
/// # Errors
/// Fails if the text is something else, or the number is out of range.
pub(crate) fn parse(text: &str) -> Result<Partition, UnitError> {
    match text {
        "majority" => Ok(Partition::Majority),
        "all" => Ok(Partition::All),
        _ => match text.parse() {
            Ok(least @ 1..=Partition::MAX_AT_LEAST) => Ok(Partition::AtLeast(least)),
            _ => Err(UnitError {
                cause: format!("quorum '{text}' is invalid: expected majority, all, or a number"),
                fix: format!(
                    "give majority, all, or a number of members from 1 to {}",
                    Partition::MAX_AT_LEAST
                ),
            }),
        },
    }
}

/// Returns the flags with which the members of a group joined.
pub(crate) fn flags(partition: Partition) -> String {
    match partition {
        Partition::Majority => "--ordered".to_owned(),
        Partition::All => "--ordered --quorum all".to_owned(),
        Partition::AtLeast(least) => format!("--ordered --quorum {least}"),
        Partition::QuorumOf(voters) => format!("--ordered --quorum-of {voters}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom::rmp::RingView;

    #[test]
    fn a_quorum_is_a_majority_all_or_a_number_of_members() {
        assert_eq!(parse("majority"), Ok(Partition::Majority));
        assert_eq!(parse("all"), Ok(Partition::All));
        assert_eq!(parse("3"), Ok(Partition::AtLeast(3)));
        for wrong in ["0", "-1", "half", "", "70000"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn flag_and_library_take_the_same_numbers_of_members() {
        for least in 0..=u16::MAX {
            let is_flag_valid = parse(&least.to_string()).is_ok();
            assert_eq!(is_flag_valid, Partition::AtLeast(least).validate().is_ok(), "{least}");
        }
        assert_eq!(usize::from(Partition::MAX_AT_LEAST), RingView::MAX_MEMBERS);
    }
}

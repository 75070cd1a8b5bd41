//! Flags for the quorum of a ring that continues after a fault: `--quorum` and `--quorum-of`.

use carom::Quorum;
use carom_terminal::units::UnitError;

pub(crate) fn parse(text: &str) -> Result<Quorum, UnitError> {
    match text {
        "majority" => Ok(Quorum::Majority),
        "all" => Ok(Quorum::All),
        _ => match text.parse() {
            Ok(least @ 1..=Quorum::MAX_AT_LEAST) => Ok(Quorum::AtLeast(least)),
            _ => Err(UnitError {
                cause: format!("quorum '{text}' is invalid: expected majority, all, or a number"),
                fix: format!(
                    "use majority, all, or a number of members from 1 to {}",
                    Quorum::MAX_AT_LEAST
                ),
            }),
        },
    }
}

pub(crate) fn flags(quorum: Quorum) -> String {
    match quorum {
        Quorum::Majority => "--ordered".to_owned(),
        Quorum::All => "--ordered --quorum all".to_owned(),
        Quorum::AtLeast(least) => format!("--ordered --quorum {least}"),
        Quorum::QuorumOf(voters) => format!("--ordered --quorum-of {voters}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom::RingView;

    #[test]
    fn a_quorum_is_a_majority_all_or_a_number_of_members() {
        assert_eq!(parse("majority"), Ok(Quorum::Majority));
        assert_eq!(parse("all"), Ok(Quorum::All));
        assert_eq!(parse("3"), Ok(Quorum::AtLeast(3)));
        for wrong in ["0", "-1", "half", "", "70000"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn flag_and_library_take_the_same_numbers_of_members() {
        for least in 0..=u16::MAX {
            let is_flag_valid = parse(&least.to_string()).is_ok();
            assert_eq!(is_flag_valid, Quorum::AtLeast(least).is_valid(), "{least}");
        }
        assert_eq!(usize::from(Quorum::MAX_AT_LEAST), RingView::MAX_MEMBERS);
    }
}

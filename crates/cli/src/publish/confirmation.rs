use carom::{ConfirmError, Confirmed};
use carom_terminal::counted;

use super::promises::Kept;

pub(super) enum Confirmation {
    Confirmed(Confirmed),
    ConfirmError(ConfirmError),
    Ordered(Kept),
    AllLeft,
    AllFailed,
    Alone,
    NotAwaited,
}

impl Confirmation {
    pub(super) fn words(&self) -> String {
        match self {
            Self::Confirmed(safe) if !safe.incomplete.is_empty() => {
                let lost: Vec<String> = safe
                    .incomplete
                    .iter()
                    .map(|(node, count)| format!("{node} lost {count}"))
                    .collect();
                lost.join(", ")
            }
            Self::Confirmed(safe) => format!("safe with {}", counted(safe.members, "member")),
            Self::ConfirmError(not_safe) => not_safe.to_string(),
            Self::Ordered(kept) => kept.words(),
            Self::AllLeft => "not safe: all members left before they confirmed".to_owned(),
            Self::AllFailed => "not safe: all members failed".to_owned(),
            Self::Alone => "not safe: there was no other member".to_owned(),
            Self::NotAwaited => "interrupted, not confirmed".to_owned(),
        }
    }

    pub(super) fn figures(&self) -> (usize, Vec<String>, &[(carom::NodeId, u32)]) {
        match self {
            Self::Confirmed(safe) => (safe.members, Vec::new(), &safe.incomplete),
            Self::ConfirmError(not_safe) => (0, names(not_safe), &[]),
            Self::Ordered(kept) => (kept.members, Vec::new(), &[]),
            Self::AllLeft | Self::AllFailed | Self::Alone | Self::NotAwaited => {
                (0, Vec::new(), &[])
            }
        }
    }

    pub(super) fn is_safe(&self) -> bool {
        match self {
            Self::Confirmed(safe) => safe.incomplete.is_empty(),
            Self::Ordered(kept) => kept.is_whole(),
            _ => false,
        }
    }

    pub(super) fn is_finding(&self) -> bool {
        match self {
            Self::Confirmed(_) => !self.is_safe(),
            Self::ConfirmError(_) | Self::AllLeft | Self::AllFailed => true,
            Self::Ordered(kept) => kept.is_finding(),
            // `--wait-for 0` permits a run without members.
            Self::Alone | Self::NotAwaited => false,
        }
    }
}

fn names(not_safe: &ConfirmError) -> Vec<String> {
    match not_safe {
        ConfirmError::Timeout { waiting_for } => {
            waiting_for.iter().map(ToString::to_string).collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom::{GroupId, NodeId, SeqNo};

    #[test]
    fn unconfirmed_end_is_a_finding_that_names_missing_members() {
        let not_safe = ConfirmError::Timeout { waiting_for: vec![NodeId(0xabc)] };
        let confirmed = Confirmation::ConfirmError(not_safe);
        assert!(confirmed.is_finding());
        assert!(confirmed.words().contains("abc"));
    }

    #[test]
    fn members_that_lost_something_are_a_finding() {
        let safe = |incomplete| {
            Confirmation::Confirmed(Confirmed {
                group: GroupId(1),
                up_to: SeqNo(9),
                members: 3,
                incomplete,
            })
        };
        assert!(!safe(Vec::new()).is_finding());
        assert_eq!(safe(Vec::new()).words(), "safe with 3 members");
        assert!(safe(vec![(NodeId(1), 4)]).is_finding());
        assert!(!Confirmation::NotAwaited.is_finding());
        assert!(safe(Vec::new()).is_safe() && !Confirmation::Alone.is_safe());
        assert!(Confirmation::Alone.words().starts_with("not safe"), "no member has the messages");
    }

    #[test]
    fn publisher_alone_is_not_safe_and_no_finding() {
        let alone = Confirmation::Alone;
        assert_eq!(alone.words(), "not safe: there was no other member");
        assert!(!alone.is_safe() && !alone.is_finding());
        assert_eq!(alone.figures().0, 0);
    }

    #[test]
    fn members_that_all_left_unconfirmed_are_a_finding() {
        let left = Confirmation::AllLeft;
        assert!(left.is_finding() && !left.is_safe());
        assert!(left.words().starts_with("not safe: all members left"), "{}", left.words());
    }
}

//! The state of the messages of an ordered group, each with its own guarantee.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use carom::{DeliveryError, Published, Qos};
use carom_terminal::counted;
use carom_terminal::units::UnitError;

#[derive(Default)]
pub(super) struct Promises {
    /// In the order of sending. Outcomes arrive in this order, except those of the last messages.
    waiting: VecDeque<Promise>,
    kept: u64,
    in_doubt: u64,
}

struct Promise(Pin<Box<dyn Future<Output = Result<(), DeliveryError>>>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) qos: Qos,
    pub(super) kept: u64,
    pub(super) in_doubt: u64,
    pub(super) open: u64,
    pub(super) members: usize,
    pub(super) is_interrupted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Order {
    /// Messages of one sender in the order sent
    Source,
    /// All messages in one order, the same at all members
    Total,
}

/// The number of members that can fail at once without losing a delivered message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resilience {
    /// The given number of members, at least 1.
    Of(u8),
    /// Fewer than half of the members. The order is final.
    Majority,
    All,
}

impl Promises {
    pub(super) fn add(&mut self, published: Published) {
        self.waiting.push_back(Promise(Box::pin(published.delivered())));
    }

    pub(super) fn look(&mut self) -> usize {
        let mut context = Context::from_waker(Waker::noop());
        while let Some(Promise(first)) = self.waiting.front_mut() {
            match first.as_mut().poll(&mut context) {
                Poll::Pending => break,
                Poll::Ready(Ok(())) => self.kept += 1,
                Poll::Ready(Err(_)) => self.in_doubt += 1,
            }
            self.waiting.pop_front();
        }
        self.waiting.len()
    }

    pub(super) fn stand(&self, qos: Qos, members: usize, is_interrupted: bool) -> Kept {
        let (kept, in_doubt, open) = (self.kept, self.in_doubt, self.waiting.len() as u64);
        Kept { qos, kept, in_doubt, open, members, is_interrupted }
    }
}

impl Kept {
    pub(super) fn is_whole(&self) -> bool {
        self.in_doubt == 0 && self.open == 0
    }

    pub(super) fn is_finding(&self) -> bool {
        self.in_doubt > 0 || (self.open > 0 && !self.is_interrupted)
    }

    pub(super) fn words(&self) -> String {
        let Self { qos, kept, in_doubt, open, members, is_interrupted } = *self;
        let with = counted(members, "other");
        if self.is_whole() {
            return format!("all delivered ({qos}), in a ring with {with}");
        }
        let mut parts = vec![format!("{kept} delivered ({qos})")];
        if in_doubt > 0 {
            parts.push(format!("{in_doubt} in doubt: the ring continued without this node"));
        }
        match (open, is_interrupted) {
            (0, _) => {}
            (_, true) => parts.push(format!("{open} unknown: interrupted")),
            (_, false) => parts.push(format!("{open} still unknown, in a ring with {with}")),
        }
        parts.join("; ")
    }
}

pub(super) fn qos(order: Option<Order>, resilience: Option<Resilience>) -> Qos {
    match (order, resilience) {
        (Some(Order::Source), _) => Qos::SourceOrdered,
        (_, None) => Qos::TotallyOrdered,
        (_, Some(Resilience::Of(count))) => Qos::Resilient(count),
        (_, Some(Resilience::Majority)) => Qos::MajorityResilient,
        (_, Some(Resilience::All)) => Qos::TotallyResilient,
    }
}

pub(super) fn resilience(text: &str) -> Result<Resilience, UnitError> {
    match text {
        "majority" => Ok(Resilience::Majority),
        "all" => Ok(Resilience::All),
        _ => match text.parse() {
            Ok(count @ 1..) => Ok(Resilience::Of(count)),
            _ => Err(UnitError {
                cause: format!(
                    "resilience '{text}' is invalid: expected majority, all, or a number"
                ),
                fix: "use majority, all, or the number of members that may fail, 1 to 255"
                    .to_owned(),
            }),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_follows_from_order_and_resilience() {
        assert_eq!(qos(Some(Order::Source), None), Qos::SourceOrdered);
        assert_eq!(qos(Some(Order::Total), None), Qos::TotallyOrdered);
        assert_eq!(qos(None, resilience("2").ok()), Qos::Resilient(2));
        assert_eq!(qos(None, resilience("majority").ok()), Qos::MajorityResilient);
        assert_eq!(qos(Some(Order::Total), resilience("all").ok()), Qos::TotallyResilient);
        for wrong in ["0", "256", "-1", "some"] {
            assert!(resilience(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_in_doubt_or_not_known_is_told_and_a_finding() {
        let qos = Qos::TotallyOrdered;
        let kept = Kept { qos, kept: 7, in_doubt: 0, open: 0, members: 2, is_interrupted: false };
        assert_eq!(kept.words(), "all delivered (totally ordered), in a ring with 2 others");
        assert!(!kept.is_finding());
        let doubtful = Kept { in_doubt: 3, ..kept };
        assert!(doubtful.is_finding() && doubtful.words().contains("3 in doubt"));
        let open = Kept { open: 4, ..kept };
        assert!(open.is_finding() && open.words().contains("4 still unknown"));
        assert!(!Kept { is_interrupted: true, ..open }.is_finding());
    }
}

use std::time::Duration;

use carom_bench::plan::Row;
use carom_bench::report::{Kind, Limit};

/// The times after which a run continues without what it waits for.
pub(super) struct Limits {
    /// From the start of the nodes to `ready` of all.
    pub(super) ready: Duration,
    /// From `go` to the last message that is sent or delivered.
    pub(super) transfer: Duration,
    /// From the last `sent` to the last delivery.
    pub(super) delivery: Duration,
    /// `true` if a run that is not complete at the limit `delivery` lacks something.
    must_complete: bool,
    /// From `stop` to the end of the nodes.
    pub(super) stop: Duration,
}

impl Limits {
    pub(super) fn of(row: &Row, kind: Kind) -> Self {
        let paced = (row.rate > 0.0).then(|| f64::from(row.messages) / row.rate);
        let transfer = match paced {
            Some(seconds) => Duration::try_from_secs_f64(seconds).unwrap_or(DAY).min(DAY) + LATE,
            None => UNPACED,
        };
        let delivery = match (kind, row.kill) {
            // Nothing is recovered: what is in flight arrives within milliseconds.
            (Kind::Raw, _) => Duration::from_millis(500),
            // Survivors wait in vain for messages that the killed node has not sent. corosync takes
            // 7 s to form a group without it.
            (_, Some(_)) => Duration::from_secs(10),
            _ => LATE,
        };
        let must_complete = kind != Kind::Raw && row.kill.is_none();
        Self { ready: READY, transfer, delivery, must_complete, stop: Duration::from_secs(15) }
    }

    /// Returns the limit at which a run was ended, with or without having sent everything.
    pub(super) fn reached(&self, is_sent: bool) -> Option<Limit> {
        match is_sent {
            false => Some(Limit::Sending),
            true => self.must_complete.then_some(Limit::Delivery),
        }
    }

    /// Returns a description of a limit that a run reached.
    pub(super) fn described(&self, limit: Limit) -> String {
        match limit {
            Limit::Sending => {
                format!("not everything was sent within {} s", self.transfer.as_secs())
            }
            Limit::Delivery => {
                let seconds = self.delivery.as_secs();
                format!("not everything was delivered within {seconds} s after the last send call")
            }
        }
    }
}

/// A node in Java warms up for seconds, on each of 2 processors.
const READY: Duration = Duration::from_secs(90);
const LATE: Duration = Duration::from_secs(15);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const UNPACED: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::cases;

    #[test]
    fn incomplete_run_reaches_a_limit_unless_it_is_expected() {
        let all = cases::built_in();
        let row = |name: &str| all.iter().find(|row| row.name == name).expect("it is built in");
        let reached = |name: &str, kind, is_sent| Limits::of(row(name), kind).reached(is_sent);
        assert_eq!(reached("pace", Kind::Peer, true), Some(Limit::Delivery));
        assert_eq!(reached("pace", Kind::Peer, false), Some(Limit::Sending));
        assert_eq!(reached("pace", Kind::Raw, true), None, "nothing is recovered");
        assert_eq!(reached("order-kill", Kind::Carom, true), None, "the killed node sent less");
        assert_eq!(reached("order-kill", Kind::Carom, false), Some(Limit::Sending));
    }
}

use std::time::Duration;

use carom_proto::Time;

/// The times at which the node on each host is present. A host without an entry is always present.
#[derive(Clone, Debug)]
pub(super) struct Stays {
    stays: Vec<Stay>,
    /// Time for which a node must stay after a send to be owed the message.
    grace: Duration,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Stay {
    pub(super) from: Time,
    pub(super) until: Time,
}

impl Stays {
    pub(super) fn new(stays: Vec<Stay>, grace: Duration) -> Self {
        Self { stays, grace }
    }

    pub(super) fn for_ever() -> Self {
        Self { stays: Vec::new(), grace: Duration::ZERO }
    }

    pub(super) fn is_there(&self, host: u32, at: Time) -> bool {
        self.stays.get(host as usize).is_none_or(|stay| (stay.from..stay.until).contains(&at))
    }

    pub(super) fn owe(&self, host: u32, sent: Time) -> bool {
        self.is_there(host, sent) && self.is_there(host, sent + self.grace)
    }
}

pub(super) const BEGINNING: Time = Time(1_000_000_000);

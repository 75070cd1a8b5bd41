use std::time::Duration;

use carom_netns::{Cut, Host, Lab};
use serde::{Deserialize, Serialize};

use super::loss_spec;

/// A change of a running lab.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub(super) enum Request {
    Cut { from: String, to: String, one_way: bool },
    Heal { hosts: Vec<String> },
    Loss { host: String, loss: String },
    Rate { host: String, bits_per_second: Option<u64> },
    Outage { host: String, length_ms: u64 },
}

/// The outcome of a request.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Reply {
    Done,
    Refused { cause: String, fix: String },
}

impl Request {
    /// Returns the names of the hosts that the request names.
    pub(super) fn hosts(&self) -> Vec<&str> {
        match self {
            Self::Cut { from, to, .. } => vec![from, to],
            Self::Heal { hosts } => hosts.iter().map(String::as_str).collect(),
            Self::Loss { host, .. } | Self::Rate { host, .. } | Self::Outage { host, .. } => {
                vec![host]
            }
        }
    }

    /// Returns `true` if the numbers are in their ranges.
    fn is_possible(&self) -> bool {
        match self {
            Self::Rate { bits_per_second, .. } => bits_per_second.is_none_or(|it| it >= LEAST_RATE),
            Self::Outage { .. } => (SHORTEST_OUTAGE..=LONGEST_OUTAGE).contains(&self.length()),
            Self::Cut { .. } | Self::Heal { .. } | Self::Loss { .. } => true,
        }
    }

    /// Returns the time that the change takes.
    pub(super) fn length(&self) -> Duration {
        match self {
            Self::Outage { length_ms, .. } => Duration::from_millis(*length_ms),
            _ => Duration::ZERO,
        }
    }

    /// Changes the lab. Returns when the change has taken effect. An outage lasts as long as
    /// `wait`, which gets its length.
    pub(super) fn apply(&self, lab: &Lab, wait: impl FnOnce(Duration)) -> Result<(), Reply> {
        if !self.is_possible() {
            return Err(Reply::invalid());
        }
        let hosts: Option<Vec<&Host>> = self.hosts().iter().map(|name| find(lab, name)).collect();
        match (self, &hosts.ok_or_else(Reply::invalid)?[..]) {
            (Self::Cut { one_way, .. }, [from, to]) => {
                let paths = paths(from, to);
                let count = if *one_way { 1 } else { paths.len() };
                lab.cut_together(&paths[..count])?;
            }
            (Self::Heal { .. }, []) => lab.heal_all()?,
            (Self::Heal { .. }, [one, other]) => lab.heal_together(&paths(one, other))?,
            (Self::Loss { loss, .. }, [host]) => {
                let loss = loss_spec::parse(loss)
                    .map_err(|error| Reply::Refused { cause: error.cause, fix: error.fix })?;
                host.set_loss(&loss_spec::seeded(loss, host.number()))?;
            }
            (Self::Rate { bits_per_second, .. }, [host]) => host.set_rate(*bits_per_second)?,
            (Self::Outage { .. }, [host]) => {
                let outage = host.begin_outage()?;
                wait(self.length());
                outage.end()?;
            }
            _ => return Err(Reply::invalid()),
        }
        Ok(())
    }
}

impl Reply {
    /// Returns the reply to a request that no `carom-lab` of this version sends.
    pub(super) fn invalid() -> Self {
        Self::Refused {
            cause: "the request is invalid".to_owned(),
            fix: "use the version of carom-lab that started the lab".to_owned(),
        }
    }
}

impl From<carom_netns::Error> for Reply {
    fn from(error: carom_netns::Error) -> Self {
        Self::Refused { cause: error.cause().to_owned(), fix: error.fix().to_owned() }
    }
}

fn find<'a>(lab: &'a Lab, name: &str) -> Option<&'a Host> {
    lab.hosts().iter().find(|host| host.name() == name)
}

/// Returns both directions between two hosts.
fn paths(one: &Host, other: &Host) -> [Cut; 2] {
    let (one, other) = (one.number(), other.number());
    [Cut::Path { from: one, to: other }, Cut::Path { from: other, to: one }]
}

/// Bits per second. A lower limit would pass almost nothing.
pub(super) const LEAST_RATE: u64 = 8000;
pub(super) const SHORTEST_OUTAGE: Duration = Duration::from_millis(1);
pub(super) const LONGEST_OUTAGE: Duration = Duration::from_secs(3600);

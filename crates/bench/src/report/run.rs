use std::fmt;

use serde::{Deserialize, Serialize};

use crate::account::Account;

/// One run of one system.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Name of the row in the plan.
    pub row: String,
    /// Name of the system, with its settings unless they are the default.
    pub system: String,
    /// Turn of the row in which the run was made, from 1. The runs of one turn follow each other,
    /// so that they are compared with each other.
    pub turn: u32,
    /// Origin of the system's results, which selects the comparisons.
    pub kind: Kind,
    /// Order of delivery that the system promises with its settings.
    pub order: Order,
    /// Time limit at which the run was ended. `None` if it was complete before.
    pub limit: Option<Limit>,
    /// Results, or why there are none.
    pub result: RunResult,
}

/// The kind of a system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Carom, with any settings.
    Carom,
    /// Another system.
    Peer,
    /// Plain sockets, without recovery.
    Raw,
}

/// The order of delivery within a group that a system promises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Any order.
    #[default]
    None,
    /// The messages of each sender in the order in which they were sent.
    Source,
    /// The same order at all receivers, with the messages of each sender as they were sent.
    Total,
}

/// A time limit of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// Not all messages were sent in time.
    Sending,
    /// Not all copies were delivered in time after the last message was sent.
    Delivery,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunResult {
    /// The run was measured.
    Measured(Box<Account>),
    /// The run failed, for this reason.
    Failed(String),
    /// The system is not available, for this reason.
    Skipped(String),
}

/// The system calls of a system in a row, counted in a run whose other results are not used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Syscalls {
    /// Name of the row in the plan.
    pub row: String,
    /// Name of the system.
    pub system: String,
    /// Calls of all nodes while messages were sent and delivered, for each message.
    pub per_message: Option<f64>,
    /// Why they were not counted.
    pub reason: Option<String>,
}

impl Order {
    /// Returns `true` if the receivers of a run kept this order. A total order includes that of
    /// each sender.
    pub fn is_kept(self, account: &Account) -> bool {
        match self {
            Self::None => true,
            Self::Source => account.out_of_order == 0,
            Self::Total => account.out_of_order == 0 && account.orders_agree,
        }
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Source => "source",
            Self::Total => "total",
        })
    }
}

use std::time::Duration;

use carom::blocking::{Group, Node};
use carom_bench::{HEADER_BYTES, Header};
use carom_terminal::CliError;
use carom_terminal::interrupt::Interrupt;
use serde::{Deserialize, Serialize};

use super::args::GroupArgs;
use crate::node;

/// A message of the control group, which has the name of the benchmark's group and `.control`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(super) enum Control {
    /// A run begins. Repeated until all receivers are ready.
    Begin(Begin),
    /// The receiver has forgotten earlier runs, and counts this one.
    Ready { magic: String },
    /// The run is over. Repeated until all receivers have reported.
    End { magic: String, sent: u64 },
    /// The result of a run at one receiver.
    Report(Report),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Begin {
    pub(super) magic: String,
    /// Identifies the sender's clock; see [`clock`].
    pub(super) clock: String,
    /// Every `echo_every`th message is echoed, if the clocks differ.
    pub(super) echo_every: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Report {
    pub(super) magic: String,
    pub(super) delivered: u64,
    pub(super) duplicates: u64,
    pub(super) corrupted: u64,
    /// From the first to the last delivery.
    pub(super) span_ns: u64,
    /// `true` if the receiver has the sender's clock.
    pub(super) has_clock: bool,
    /// Histogram of the latencies in nanoseconds, if the receiver has the sender's clock.
    pub(super) latency: Vec<(u64, u64)>,
}

/// A payload of the control group.
pub(super) enum Payload {
    Control(Control),
    /// Header of a message that arrived at a receiver.
    Echo(Header),
}

/// The groups of a node of the benchmark.
pub(super) struct Groups {
    pub(super) node: Node,
    pub(super) data: Group,
    pub(super) control: Group,
}

impl Groups {
    pub(super) fn join(args: &GroupArgs, interrupt: &Interrupt) -> Result<Self, CliError> {
        let node = args.node.start(args.node.builder(), interrupt)?;
        let join =
            |name: &str, profile| node.join(name, profile).map_err(|error| refused(name, &error));
        let data = join(&args.group, args.profile.into())?;
        let control = join(&format!("{}.control", args.group), carom::Profile::time_critical())?;
        Ok(Self { node, data, control })
    }

    /// Publishes to the control group. If its queue is full, the message is dropped, because
    /// senders repeat themselves.
    pub(super) fn publish(&self, control: &Control) {
        let payload = serde_json::to_vec(control).expect("it has strings and numbers only");
        let _ = self.control.try_publish(payload);
    }
}

fn refused(name: &str, error: &carom::JoinGroupError) -> CliError {
    match error {
        carom::JoinGroupError::Refused(carom::JoinError::Contradiction { .. }) => CliError::new(
            format!("group '{name}': {error}"),
            "use the --profile of the other nodes, or another group",
        ),
        error => node::refused(name, error),
    }
}

impl Payload {
    pub(super) fn parse(payload: &[u8]) -> Option<Self> {
        match payload {
            [b'{', ..] => serde_json::from_slice(payload).ok().map(Self::Control),
            _ if payload.len() == HEADER_BYTES => Header::read(payload).map(Self::Echo),
            _ => None,
        }
    }
}

/// Returns the id of the running kernel, whose processes share one monotonic clock. Returns an
/// empty text where there is none, so that no clock is taken for the same.
pub(super) fn clock() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    id.map(|id| id.trim().to_owned()).unwrap_or_default()
}

pub(super) const IDLE: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use carom_bench::Magic;

    use super::*;

    #[test]
    fn echoes_and_control_messages_are_told_apart() {
        let mut echo = [0; HEADER_BYTES];
        let header = Header { magic: Magic([0; 8]), sender: 0, number: 7, sent_ns: 9 };
        header.write(&mut echo);
        assert!(matches!(Payload::parse(&echo), Some(Payload::Echo(read)) if read == header));
        let ready = Control::Ready { magic: "00".to_owned() };
        let text = serde_json::to_vec(&ready).expect("it can be written");
        let parsed = Payload::parse(&text);
        assert!(matches!(parsed, Some(Payload::Control(Control::Ready { .. }))));
        assert!(Payload::parse(b"{}").is_none() && Payload::parse(b"").is_none());
    }
}

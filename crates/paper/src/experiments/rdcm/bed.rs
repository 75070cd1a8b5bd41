//! The test bed of the experiments in data centers: the servers, their links and the group.

use carom_proto::loss::Loss;
use serde::Deserialize;

use crate::cluster::{Group, Setting};
use crate::plan::{RunScale, Scaled, Size, Span};

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Bed {
    /// Number of ports of a switch, and the highest level of switches.
    bcube: Scaled<(u32, u32)>,
    group: Members,
    megabits_per_second: u32,
    link_delay: Span,
    queue: Size,
    sender_queue: Size,
    packet: Size,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, tag = "are", rename_all = "snake_case")]
enum Members {
    Random { receivers: Scaled<usize> },
    Declared { sender: u32, receivers: Vec<u32> },
}

impl Bed {
    /// Returns the setting without losses, in which every gap counts as a loss at once.
    pub(crate) fn setting(&self, scale: RunScale) -> Setting {
        let (ports, k) = *self.bcube.at(scale.quick);
        let group = match &self.group {
            Members::Random { receivers } => Group::Random(*receivers.at(scale.quick)),
            Members::Declared { sender, receivers } => {
                Group::Declared { sender: *sender, receivers: receivers.clone() }
            }
        };
        Setting {
            ports,
            k,
            group,
            bits_per_second: self.bits_per_second(),
            link_delay: self.link_delay.0,
            queue_bytes: self.queue.0 as u64,
            sender_queue_bytes: self.sender_queue.0 as u64,
            loss: Loss::None,
            payload_bytes: self.packet.0,
            detect_after: core::time::Duration::ZERO,
            gone_after: None,
            controls_congestion: false,
            seed: scale.seed,
        }
    }

    pub(crate) fn bits_per_second(&self) -> u64 {
        u64::from(self.megabits_per_second) * 1_000_000
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        for quick in [false, true] {
            let (ports, k) = *self.bcube.at(quick);
            let servers = ports.checked_pow(k.saturating_add(1)).unwrap_or(u32::MAX);
            if ports < 2 || servers > MAX_SERVERS {
                return Err(format!(
                    "BCube({ports},{k}) is invalid: expected at least 2 ports and at most \
                     {MAX_SERVERS} servers"
                ));
            }
            let is_right = match &self.group {
                Members::Random { receivers } => {
                    (1..servers as usize).contains(receivers.at(quick))
                }
                Members::Declared { sender, receivers } => {
                    let others = receivers.iter().all(|it| it < &servers && it != sender);
                    *sender < servers && others && !receivers.is_empty()
                }
            };
            if !is_right {
                return Err(format!(
                    "the group is invalid: expected a sender and at least one receiver among \
                     {servers} servers"
                ));
            }
        }
        if !(1..=100_000).contains(&self.megabits_per_second) {
            let given = self.megabits_per_second;
            return Err(format!("megabits_per_second {given} is invalid: expected 1 to 100000"));
        }
        if !(1..=MAX_PACKET_BYTES).contains(&self.packet.0) {
            let given = self.packet.0;
            return Err(format!("packet {given} is invalid: expected 1 to {MAX_PACKET_BYTES}"));
        }
        Ok(())
    }
}

const MAX_SERVERS: u32 = 4096;
/// Maximum payload of a packet, in bytes. It fits in one datagram of every protocol.
const MAX_PACKET_BYTES: usize = 1300;

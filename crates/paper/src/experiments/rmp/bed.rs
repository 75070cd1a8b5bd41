//! The test bed of the experiments with token rings: the cable and the levels of service.

use std::time::Duration;

use carom_proto::loss::Loss;
use carom_proto::ring::Qos;
use carom_proto::rmp::Config;
use carom_sim::Ethernet;
use serde::Deserialize;

use crate::ordered::Setting;
use crate::plan::{RunScale, Share, Size, Span};

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Bed {
    megabits_per_second: u32,
    propagation: Span,
    interface: Size,
    cpu_per_datagram: Span,
    /// Loss of each host on receipt, of all datagrams alike. Default: none.
    #[serde(default)]
    loss: Option<Share>,
}

impl Bed {
    /// Returns the setting of a ring of `members` members, with the engine's defaults.
    pub(crate) fn setting(&self, scale: RunScale, members: u32) -> Setting {
        let ethernet = Ethernet {
            bits_per_second: u64::from(self.megabits_per_second) * 1_000_000,
            propagation: self.propagation.0,
            queue_bytes: self.interface.0 as u64,
        };
        Setting {
            ethernet,
            loss: self.loss.map_or(Loss::None, |loss| Loss::Uniform(loss.0)),
            cpu_per_datagram: self.cpu_per_datagram.0,
            config: Config::default(),
            members,
            seed: scale.seed,
        }
    }

    /// Returns the raw rate of the cable in bytes per second.
    pub(crate) fn raw_rate(&self) -> f64 {
        f64::from(self.megabits_per_second) * 1e6 / 8.0
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        if !(1..=100_000).contains(&self.megabits_per_second) {
            let given = self.megabits_per_second;
            return Err(format!("megabits_per_second {given} is invalid: expected 1 to 100000"));
        }
        if self.interface.0 < LEAST_INTERFACE_BYTES {
            return Err(format!(
                "interface of {} bytes is too small: expected at least {LEAST_INTERFACE_BYTES}",
                self.interface.0
            ));
        }
        if self.cpu_per_datagram.0 > MOST_CPU {
            return Err(format!(
                "cpu_per_datagram {:?} is too long: expected at most {MOST_CPU:?}",
                self.cpu_per_datagram.0
            ));
        }
        Ok(())
    }
}

/// A level of service, written as `unreliable`, `unordered`, `source`, `total`, `majority`, `all`,
/// or the number of other members that must hold a message.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Level(pub(crate) Qos);

impl TryFrom<String> for Level {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let qos = match text.as_str() {
            "unreliable" => Qos::Unreliable,
            "unordered" => Qos::Unordered,
            "source" => Qos::SourceOrdered,
            "total" => Qos::TotallyOrdered,
            "majority" => Qos::MajorityResilient,
            "all" => Qos::TotallyResilient,
            number => match number.parse() {
                Ok(k) if k > 0 => Qos::Resilient(k),
                _ => {
                    return Err(format!(
                        "unknown level of service '{text}': expected unreliable, unordered, \
                         source, total, majority, all, or a number above 0"
                    ));
                }
            },
        };
        Ok(Self(qos))
    }
}

/// Space for several datagrams of the largest size.
const LEAST_INTERFACE_BYTES: usize = 8192;
const MOST_CPU: Duration = Duration::from_millis(100);

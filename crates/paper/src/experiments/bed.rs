//! The test bed that most plans share: the network, the send rate, the loss and the length of runs.

use std::fmt;
use std::time::Duration;

use carom_proto::loss::Loss;
use serde::Deserialize;

use crate::lateral::{LateralRun, Length, Membership};
use crate::network::Wiring;
use crate::plan::{RunScale, Scaled, Share, Span};

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Bed {
    pub(crate) network: Wiring,
    pub(crate) interval: Span,
    pub(crate) payload_bytes: usize,
    pub(crate) loss: Share,
    /// Approximate number of losses that each run counts.
    pub(crate) losses: Scaled<u32>,
    pub(crate) warm_up_packets: Scaled<u32>,
    pub(crate) tail: Span,
}

impl Bed {
    pub(crate) fn run(&self, scale: RunScale, membership: Membership) -> LateralRun {
        let length = Length {
            warm_up_packets: *self.warm_up_packets.at(scale.quick),
            losses: *self.losses.at(scale.quick),
            tail: self.tail.0,
        };
        LateralRun {
            interval: self.interval.0,
            payload_bytes: self.payload_bytes,
            loss: Loss::Uniform(self.loss.0),
            length,
            ..LateralRun::of_papers(self.network.clone(), membership, scale.seed)
        }
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        self.network.check()?;
        if self.interval.0 < MIN_INTERVAL {
            return Err(format!(
                "interval {:?} is too short: expected at least {MIN_INTERVAL:?}",
                self.interval.0
            ));
        }
        if self.payload_bytes > MAX_PAYLOAD_BYTES {
            let most = MAX_PAYLOAD_BYTES;
            let bytes = self.payload_bytes;
            return Err(format!("payload_bytes {bytes} is too large: expected at most {most}"));
        }
        if self.loss.0 <= 0.0 || self.loss.0 >= 1.0 {
            let percent = 100.0 * self.loss.0;
            return Err(format!("loss {percent} % is invalid: expected above 0 % and below 100 %"));
        }
        Ok(())
    }
}

/// Checks swept values: there must be at least one, and all must be from `least` to `most`.
pub(crate) fn check_list<T: PartialOrd + Copy + fmt::Debug>(
    name: &str,
    values: &[T],
    least: T,
    most: T,
) -> Result<(), String> {
    if values.is_empty() {
        return Err(format!("{name} is empty: expected at least one value"));
    }
    match values.iter().find(|value| **value < least || **value > most) {
        Some(value) => {
            Err(format!("invalid value {value:?} for {name}: expected {least:?} to {most:?}"))
        }
        None => Ok(()),
    }
}

impl<T: PartialOrd + Copy + fmt::Debug> Scaled<T> {
    pub(super) fn check_value(&self, name: &str, least: T, most: T) -> Result<(), String> {
        check_list(name, &[*self.at(false), *self.at(true)], least, most)
    }
}

impl<T: PartialOrd + Copy + fmt::Debug> Scaled<Vec<T>> {
    pub(super) fn check(&self, name: &str, least: T, most: T) -> Result<(), String> {
        check_list(name, self.at(false), least, most)?;
        check_list(name, self.at(true), least, most)
    }
}

const MIN_INTERVAL: Duration = Duration::from_micros(10);
const MAX_PAYLOAD_BYTES: usize = 1024;

//! Throughput of files multicast to all members in total order (RMP, figures 5.1 and 5.2).

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use carom_proto::ring::Qos;

use super::ring::{Counts, Ring, Setting};
use crate::work::{Env, Run};

/// A run in which several members repeatedly send files at once. The first transfer is not counted.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TransferRun {
    pub(crate) setting: Setting,
    pub(crate) sources: u32,
    /// `true` if the sources are not counted as destinations. They are members in any case.
    pub(crate) apart: bool,
    pub(crate) file_bytes: usize,
    pub(crate) message_bytes: usize,
    pub(crate) repeats: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TransferOutcome {
    pub(crate) destinations: u32,
    /// Total rate of the files in each repeat, in bytes per second. NaN if they took too long or
    /// were not delivered to a member.
    pub(crate) rates: Vec<f64>,
    pub(crate) counts: Counts,
}

/// Time limit of a transfer, as a multiple of the files' time on the wire without framing.
const MOST_TIMES: u32 = 20;

impl Run for TransferRun {
    type Outcome = TransferOutcome;

    fn run(&self, env: Env<'_>) -> Option<Self::Outcome> {
        let mut ring = self.setting.ring(env)?;
        let mut last = self.send_files(&mut ring, env)?;
        let before = ring.counts();
        let mut rates = Vec::new();
        for _ in 0..self.repeats {
            // Messages of a file that took too long would count for the next one.
            if last.is_some() {
                last = self.send_files(&mut ring, env)?;
            }
            let bytes = self.file_bytes as f64 * f64::from(self.sources);
            rates.push(last.map_or(f64::NAN, |span| bytes / span.as_secs_f64()));
        }
        let counts = ring.counts().since(before);
        Some(TransferOutcome { destinations: self.destinations(), rates, counts })
    }

    fn hosts_of_medium(&self) -> Option<u32> {
        Some(self.setting.members)
    }

    fn cost(&self) -> f64 {
        let datagrams = self.file_bytes as f64 * f64::from(self.sources) / 1400.0;
        datagrams * f64::from(self.setting.members * (1 + self.repeats))
    }
}

impl TransferRun {
    fn destinations(&self) -> u32 {
        self.setting.members - if self.apart { self.sources } else { 0 }
    }

    /// Sends a file from each source at once. Returns the time until the last destination has all
    /// of them, or `Some(None)` if that takes too long or never happens. Returns `None` if the run
    /// is ended early.
    fn send_files(&self, ring: &mut Ring, env: Env<'_>) -> Option<Option<Duration>> {
        let start = ring.world.now();
        let file = Bytes::from(vec![0x5A; self.file_bytes]);
        for source in 0..self.sources {
            for from in (0..self.file_bytes).step_by(self.message_bytes) {
                let to = (from + self.message_bytes).min(self.file_bytes);
                ring.send(source, Qos::TotallyOrdered, file.slice(from..to));
            }
        }
        let each = self.file_bytes * self.sources as usize;
        let bits = 8.0 * each as f64 / self.setting.ethernet.bits_per_second as f64;
        let end = start + Duration::from_secs_f64(bits) * MOST_TIMES;
        let mut lacking = vec![each; self.setting.members as usize];
        let mut last = start;
        while lacking.iter().any(|bytes| *bytes > 0) {
            // A member that was evicted never gets the messages that it missed.
            if ring.world.now() > end || !ring.step(env)? {
                return Some(None);
            }
            while let Some(received) = ring.received() {
                lacking[received.member as usize] -= received.message.payload.len();
                if !self.apart || received.member >= self.sources {
                    last = received.at;
                }
            }
        }
        Some(Some(last.since(start)))
    }
}

impl TransferOutcome {
    pub(crate) fn rate(&self) -> f64 {
        self.rates.iter().sum::<f64>() / self.rates.len() as f64
    }

    pub(crate) fn spread(&self) -> f64 {
        let (low, high) = self
            .rates
            .iter()
            .fold((f64::INFINITY, 0.0), |(low, high), rate| (rate.min(low), rate.max(high)));
        (high - low) / self.rate()
    }
}

impl fmt::Display for TransferRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "files from {} sources to {} members", self.sources, self.destinations())
    }
}

#[cfg(test)]
mod tests {
    use carom_proto::loss::Loss;
    use carom_proto::rmp::Config;
    use carom_sim::Ethernet;

    use super::*;

    /// The first packets of several sources exceed their interfaces' queues, so that places and
    /// retransmissions are late.
    #[test]
    fn full_queues_of_live_sources_begin_no_reformation() {
        for (seed, sources, loss) in [(0, 4, 0.01), (3, 4, 0.01), (4, 2, 0.01), (5, 8, 0.0)] {
            let setting = Setting {
                ethernet: Ethernet::default(),
                loss: if loss > 0.0 { Loss::Uniform(loss) } else { Loss::None },
                cpu_per_datagram: Duration::ZERO,
                config: Config::default(),
                members: 8,
                seed,
            };
            let (apart, file_bytes, message_bytes) = (false, 500_000, 8192);
            let run =
                TransferRun { setting, sources, apart, file_bytes, message_bytes, repeats: 1 };
            let env = &|| false;
            let mut ring = run.setting.ring(env).expect("the run is not ended early");
            let before = ring.counts();
            let span = run.send_files(&mut ring, env).expect("the run is not ended early");
            let begun = ring.counts().since(before).reformations;
            assert_eq!(begun, 0, "seed {seed}, {sources} sources");
            assert!(span.is_some(), "seed {seed}, {sources} sources: a member lacks messages");
        }
    }
}

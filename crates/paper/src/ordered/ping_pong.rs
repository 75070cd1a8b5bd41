//! Latency of one message at a time, from member to member (RMP, figure 5.3).

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use carom_proto::ring::Qos;

use super::ring::{Counts, Ring, Setting};
use crate::work::{Env, Run};

/// A message that each member forwards to another member, drawn at random.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PingPongRun {
    pub(crate) setting: Setting,
    pub(crate) qos: Qos,
    pub(crate) message_bytes: usize,
    pub(crate) warm_up: u32,
    pub(crate) exchanges: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PingPongOutcome {
    /// Mean latency, from the sending application to the application that must answer.
    pub(crate) mean: Duration,
    pub(crate) longest: Duration,
    pub(crate) counts: Counts,
}

/// Minimum size of a message, in bytes, which holds its number.
pub(crate) const LEAST_BYTES: usize = size_of::<u32>();
/// Time after which a message that did not arrive is an error.
const PATIENCE: Duration = Duration::from_secs(10);

impl Run for PingPongRun {
    type Outcome = PingPongOutcome;

    fn run(&self, env: Env<'_>) -> Option<Self::Outcome> {
        let mut ring = self.setting.ring(env)?;
        let mut holder = 0;
        for number in 0..self.warm_up {
            holder = self.pass(&mut ring, holder, number, env)?;
        }
        let (start, before) = (ring.world.now(), ring.counts());
        let mut longest = Duration::ZERO;
        for number in 0..self.exchanges {
            let at = ring.world.now();
            holder = self.pass(&mut ring, holder, self.warm_up + number, env)?;
            longest = longest.max(ring.world.now().since(at));
        }
        let mean = ring.world.now().since(start) / self.exchanges;
        Some(PingPongOutcome { mean, longest, counts: ring.counts().since(before) })
    }

    fn hosts_of_medium(&self) -> Option<u32> {
        Some(self.setting.members)
    }

    fn cost(&self) -> f64 {
        4.0 * f64::from(self.setting.members * (self.warm_up + self.exchanges))
    }
}

impl PingPongRun {
    fn pass(&self, ring: &mut Ring, holder: u32, number: u32, env: Env<'_>) -> Option<u32> {
        let step = 1 + ring.rng.below(ring.members as usize - 1) as u32;
        let next = (holder + step) % ring.members;
        let mut payload = number.to_be_bytes().to_vec();
        payload.resize(self.message_bytes.max(LEAST_BYTES), 0);
        let payload = Bytes::from(payload);
        let end = ring.world.now() + PATIENCE;
        ring.send(holder, self.qos, payload.clone());
        loop {
            while let Some(received) = ring.received() {
                if received.member == next && received.message.payload == payload {
                    return Some(next);
                }
            }
            let is_in_time = ring.step(env)? && ring.world.now() < end;
            assert!(is_in_time, "a message of level {} did not arrive in time", self.qos);
        }
    }
}

impl fmt::Display for PingPongRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ping-pong of {} members, {}", self.setting.members, self.qos)
    }
}

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
/// Time after which a message that did not arrive is lost, which is an error of a reliable level.
const PATIENCE: Duration = Duration::from_secs(10);

impl Run for PingPongRun {
    type Outcome = PingPongOutcome;

    fn run(&self, env: Env<'_>) -> Option<Self::Outcome> {
        let mut ring = self.setting.ring(env)?;
        let mut holder = 0;
        for number in 0..self.warm_up {
            (holder, _) = self.pass(&mut ring, holder, number, env)?;
        }
        let before = ring.counts();
        let (mut sum, mut longest) = (Duration::ZERO, Duration::ZERO);
        for number in 0..self.exchanges {
            let latency;
            (holder, latency) = self.pass(&mut ring, holder, self.warm_up + number, env)?;
            sum += latency;
            longest = longest.max(latency);
        }
        let mean = sum / self.exchanges;
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
    /// Passes a message from `holder` to another member. Returns that member, and the latency.
    ///
    /// An unreliable message that is lost is sent again, with its time starting anew.
    fn pass(
        &self,
        ring: &mut Ring,
        holder: u32,
        number: u32,
        env: Env<'_>,
    ) -> Option<(u32, Duration)> {
        let step = 1 + ring.rng.below(ring.members as usize - 1) as u32;
        let next = (holder + step) % ring.members;
        let mut payload = number.to_be_bytes().to_vec();
        payload.resize(self.message_bytes.max(LEAST_BYTES), 0);
        let payload = Bytes::from(payload);
        loop {
            let sent = ring.world.now();
            ring.send(holder, self.qos, payload.clone());
            if self.arrives(ring, next, &payload, env)? {
                return Some((next, ring.world.now().since(sent)));
            }
            let may_be_lost = self.qos == Qos::Unreliable;
            assert!(may_be_lost, "a message of level {} did not arrive in time", self.qos);
        }
    }

    /// Waits for a message at `member`. Returns `false` if it does not arrive in time.
    fn arrives(&self, ring: &mut Ring, member: u32, payload: &Bytes, env: Env<'_>) -> Option<bool> {
        let end = ring.world.now() + PATIENCE;
        loop {
            while let Some(received) = ring.received() {
                if received.member == member && received.message.payload == *payload {
                    return Some(true);
                }
            }
            if !ring.step(env)? || ring.world.now() >= end {
                return Some(false);
            }
        }
    }
}

impl fmt::Display for PingPongRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ping-pong of {} members, {}", self.setting.members, self.qos)
    }
}

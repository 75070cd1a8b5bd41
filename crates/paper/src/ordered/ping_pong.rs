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
    /// Number of unreliable messages that were lost on a real network, and sent again. Their
    /// latency is not included.
    pub(crate) lost: u32,
}

/// A message on its way from member to member.
struct Ball {
    ring: Ring,
    holder: u32,
    sent: u32,
}

/// Minimum size of a message, in bytes, which holds its number.
pub(crate) const LEAST_BYTES: usize = size_of::<u32>();
/// Time after which a message that did not arrive is lost.
const PATIENCE: Duration = Duration::from_secs(10);
/// Number of times that an unreliable message is sent before its loss is an error.
const ATTEMPTS: u32 = 5;

impl Run for PingPongRun {
    type Outcome = PingPongOutcome;

    fn run(&self, env: Env<'_>) -> Option<Self::Outcome> {
        let mut ball = Ball { ring: self.setting.ring(env)?, holder: 0, sent: 0 };
        for _ in 0..self.warm_up {
            self.pass(&mut ball, env)?;
        }
        let before = ball.ring.counts();
        let (mut sum, mut longest) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..self.exchanges {
            let latency = self.pass(&mut ball, env)?;
            sum += latency;
            longest = longest.max(latency);
        }
        let counts = ball.ring.counts().since(before);
        let lost = ball.sent - self.warm_up - self.exchanges;
        Some(PingPongOutcome { mean: sum / self.exchanges, longest, counts, lost })
    }

    fn hosts_of_medium(&self) -> Option<u32> {
        Some(self.setting.members)
    }

    fn cost(&self) -> f64 {
        4.0 * f64::from(self.setting.members * (self.warm_up + self.exchanges))
    }
}

impl PingPongRun {
    /// Passes the message to another member. Returns its latency.
    ///
    /// On a real network, an unreliable message may be lost. It is then sent again as another one.
    fn pass(&self, ball: &mut Ball, env: Env<'_>) -> Option<Duration> {
        let members = ball.ring.members;
        let step = 1 + ball.ring.rng.below(members as usize - 1) as u32;
        let next = (ball.holder + step) % members;
        let may_be_lost = env.media().is_some() && self.qos == Qos::Unreliable;
        for _ in 0..if may_be_lost { ATTEMPTS } else { 1 } {
            let sent = ball.ring.world.now();
            if self.send(ball, next, env)? {
                ball.holder = next;
                return Some(ball.ring.world.now().since(sent));
            }
        }
        panic!("a message of level {} did not arrive in time", self.qos);
    }

    /// Sends the message to `next`. Returns `false` if it does not arrive in time.
    fn send(&self, ball: &mut Ball, next: u32, env: Env<'_>) -> Option<bool> {
        let mut payload = ball.sent.to_be_bytes().to_vec();
        payload.resize(self.message_bytes.max(LEAST_BYTES), 0);
        let payload = Bytes::from(payload);
        ball.ring.send(ball.holder, self.qos, payload.clone());
        ball.sent += 1;
        let end = ball.ring.world.now() + PATIENCE;
        loop {
            while let Some(received) = ball.ring.received() {
                if received.member == next && received.message.payload == payload {
                    return Some(true);
                }
            }
            if ball.ring.world.now() >= end || !ball.ring.step(env)? {
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

//! One message at a time, from member to member (RMP, figure 5.3).

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use carom_proto::rmp::Qos;

use super::{Counts, Ring, Setting};
use crate::work::Ends;

/// A message goes from a member to another one, which answers it with the next, to another one
/// again; who that is is random.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PingPongRun {
    pub(crate) setting: Setting,
    pub(crate) qos: Qos,
    pub(crate) message_bytes: usize,
    /// How often the message changes hands before it counts, and while it does.
    pub(crate) warm_up: u32,
    pub(crate) exchanges: u32,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PingPongOutcome {
    /// From the application that sends to the one that is to answer: the mean and the longest.
    pub(crate) mean: Duration,
    pub(crate) longest: Duration,
    /// What was counted.
    pub(crate) counts: Counts,
}

/// Bytes of the number that each message has.
pub(crate) const LEAST_BYTES: usize = size_of::<u32>();
/// How long a message is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

impl PingPongRun {
    /// Does it; `None` if it was ended early.
    pub(crate) fn run(&self, ends: Ends<'_>) -> Option<PingPongOutcome> {
        let mut ring = self.setting.ring(ends)?;
        let mut holder = 0;
        for number in 0..self.warm_up {
            holder = self.pass(&mut ring, holder, number, ends)?;
        }
        let (start, before) = (ring.world.now(), ring.counts());
        let mut longest = Duration::ZERO;
        for number in 0..self.exchanges {
            let at = ring.world.now();
            holder = self.pass(&mut ring, holder, self.warm_up + number, ends)?;
            longest = longest.max(ring.world.now().since(at));
        }
        let mean = ring.world.now().since(start) / self.exchanges;
        Some(PingPongOutcome { mean, longest, counts: ring.counts().since(before) })
    }

    /// How many datagrams arrive at members, roughly.
    pub(crate) fn deliveries(&self) -> f64 {
        4.0 * f64::from(self.setting.members * (self.warm_up + self.exchanges))
    }

    /// The message goes from `holder` to another member, which is returned.
    fn pass(&self, ring: &mut Ring, holder: u32, number: u32, ends: Ends<'_>) -> Option<u32> {
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
            assert!(ring.world.now() < end, "a message of level {} has not come", self.qos);
            ring.step(ends)?;
        }
    }
}

impl fmt::Display for PingPongRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ping-pong of {} members, {}", self.setting.members, self.qos)
    }
}

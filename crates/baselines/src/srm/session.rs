//! Session messages: their interval, and the distances that they measure (sections III-A, III-B).

use core::time::Duration;
use std::collections::BTreeMap;

use carom_proto::{NodeId, Rng, Time};

use super::config::{Config, Distance};

#[derive(Debug, Default)]
pub(crate) struct Peers {
    peers: BTreeMap<NodeId, Peer>,
}

#[derive(Debug, Default)]
struct Peer {
    /// Sending time of the last session message, by its sender's clock, and its time of arrival.
    last: Option<(u64, Time)>,
    distance: Option<Duration>,
}

/// Minimum distance, which is the resolution of timers on a real host.
const MIN_DISTANCE: Duration = Duration::from_micros(10);

impl Peers {
    /// Processes a session message that `peer` sent at `sent_at` of its clock. `echo` holds the
    /// sending time of this node's last session message, and the time in microseconds for which the
    /// peer held it.
    ///
    /// Returns `true` if the distance was measured, or `None` if the limit of peers is reached.
    pub(crate) fn on_session(
        &mut self,
        now: Time,
        peer: NodeId,
        sent_at: u64,
        echo: Option<(u64, u32)>,
        max_peers: usize,
    ) -> Option<bool> {
        if self.peers.len() >= max_peers && !self.peers.contains_key(&peer) {
            return None;
        }
        let peer = self.peers.entry(peer).or_default();
        peer.last = Some((sent_at, now));
        let round_trip = echo.and_then(|(echo, held_us)| {
            now.0.checked_sub(echo)?.checked_sub(u64::from(held_us) * 1000)
        });
        peer.distance = round_trip.map(|it| Duration::from_nanos(it / 2)).or(peer.distance);
        Some(round_trip.is_some())
    }

    pub(crate) fn remove(&mut self, peer: NodeId) {
        self.peers.remove(&peer);
    }

    pub(crate) fn len(&self) -> usize {
        self.peers.len()
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = NodeId> {
        self.peers.keys().copied()
    }

    pub(crate) fn echo(&self, now: Time, peer: NodeId) -> Option<(u64, u32)> {
        let (sent_at, received_at) = self.peers.get(&peer)?.last?;
        let held_us = now.since(received_at).as_micros();
        Some((sent_at, u32::try_from(held_us).unwrap_or(u32::MAX)))
    }

    pub(crate) fn distance(&self, peer: NodeId, setting: Distance) -> Duration {
        let distance = match setting {
            Distance::Fixed(distance) => distance,
            Distance::Estimated { until_known } => {
                self.peers.get(&peer).and_then(|it| it.distance).unwrap_or(until_known)
            }
        };
        distance.max(MIN_DISTANCE)
    }
}

#[derive(Debug)]
pub(crate) struct Pace {
    since: Time,
    data_bytes: u64,
    data_rate: f64,
    pub(crate) reported_to: Option<NodeId>,
}

const NEWEST: f64 = 0.25;

impl Pace {
    pub(crate) fn new(now: Time) -> Self {
        Self { since: now, data_bytes: 0, data_rate: 0.0, reported_to: None }
    }

    pub(crate) fn count(&mut self, bytes: usize) {
        self.data_bytes += bytes as u64;
    }

    /// Returns the wait after a session message of `bytes` bytes in a group of `size` members.
    pub(crate) fn next(
        &mut self,
        now: Time,
        size: usize,
        bytes: usize,
        config: &Config,
        rng: &mut Rng,
    ) -> Duration {
        let spread = 0.9 + 0.2 * rng.fraction();
        let mut interval = config.session_interval;
        if let Some(share) = config.session_share {
            self.measure(now);
            let allowed = share * self.data_rate;
            let needed = (size * bytes) as f64 / allowed;
            let most = config.max_session_interval.as_secs_f64();
            let stretched = if needed.is_finite() { needed.min(most) } else { most };
            interval = interval.max(Duration::from_secs_f64(stretched));
        }
        interval.mul_f64(spread)
    }

    fn measure(&mut self, now: Time) {
        let seconds = now.since(self.since).as_secs_f64();
        if seconds > 0.0 {
            let rate = self.data_bytes as f64 / seconds;
            self.data_rate += NEWEST * (rate - self.data_rate);
            (self.since, self.data_bytes) = (now, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: NodeId = NodeId(7);
    const MILLISECOND: Duration = Duration::from_millis(1);
    const ESTIMATED: Distance = Distance::Estimated { until_known: Duration::from_secs(1) };

    #[test]
    fn a_distance_is_half_the_round_trip_without_the_time_held() {
        let mut peers = Peers::default();
        assert_eq!(peers.distance(PEER, ESTIMATED), Duration::from_secs(1));
        assert_eq!(peers.on_session(Time(0), PEER, 99, None, 1), Some(false));
        assert_eq!(peers.distance(PEER, ESTIMATED), Duration::from_secs(1));
        let (sent, now) = (Time(1), Time(1) + MILLISECOND * 10);
        assert_eq!(peers.on_session(now, PEER, 5, Some((sent.0, 8000)), 1), Some(true));
        assert_eq!(peers.distance(PEER, ESTIMATED), MILLISECOND);
        assert_eq!(peers.distance(PEER, Distance::Fixed(MILLISECOND * 3)), MILLISECOND * 3);
        assert_eq!(peers.echo(now + MILLISECOND, PEER), Some((5, 1000)));
        assert_eq!(peers.on_session(now, NodeId(8), 5, None, 1), None);
    }

    #[test]
    fn an_echo_from_the_future_measures_nothing() {
        let mut peers = Peers::default();
        assert_eq!(peers.on_session(Time(5), PEER, 1, Some((6, 0)), 9), Some(false));
        assert_eq!(peers.on_session(Time(5), PEER, 1, Some((5, 1)), 9), Some(false));
    }

    #[test]
    fn session_messages_keep_to_their_share_of_the_data() {
        let mut config = Config::ns2_fixed();
        let mut rng = Rng::new(1);
        let mut pace = Pace::new(Time(0));
        let second = Duration::from_secs(1);
        let plain = pace.next(Time(0) + second, 64, 1000, &config, &mut rng);
        assert!((0.9..=1.1).contains(&plain.as_secs_f64()), "{plain:?}");
        config.session_share = Some(0.05);
        let idle = pace.next(Time(0) + second, 64, 1000, &config, &mut rng);
        assert!(idle >= config.max_session_interval.mul_f64(0.9), "{idle:?}");
        let mut now = Time(0) + second;
        for _ in 0..40 {
            pace.count(160_000);
            now = now + second;
            pace.next(now, 64, 1000, &config, &mut rng);
        }
        // 64 * 1000 bytes are 5 % of 160000 bytes/s in 8 s.
        pace.count(160_000);
        let stretched = pace.next(now + second, 64, 1000, &config, &mut rng).as_secs_f64();
        assert!((7.2..=8.8).contains(&stretched), "{stretched}");
    }
}

//! How one node's RMP engine is set.

use core::time::Duration;

use super::flow::Timeouts;
use super::packet::{ACK_BYTES, DATA_BYTES, RUN_BYTES};
use crate::SeqNo;
use crate::bounds::out_of_bounds;

/// The settings of an [`Rmp`](super::Rmp) engine. The defaults are for a local network.
///
/// A time is zero or from 1 us to 24 h. The tries of each kind are 1000 at most.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Bytes of the largest IP packet on the path: no packet of ours is ever cut by IP.
    /// Default 1500.
    pub path_mtu: u16,
    /// Bytes of the largest message; larger ones are refused. At least 64, at most 16 MiB. Default
    /// 16 MiB.
    pub message_bytes: usize,
    /// Bytes of messages that wait for the window. A full queue refuses more, an empty one takes
    /// any. Default 32 MiB.
    pub queue_bytes: usize,
    /// Maximum number of bytes in flight, that is without a place in the order, on paths with a
    /// round trip of up to 50 ms; on longer ones so many for each 50 ms, up to ten times as many.
    /// The window does not grow while packets wait in queues for more than half of
    /// `largest_timeout` and for longer than the shortest round trip. Default 256 KiB, for 5 MB/s.
    pub window_bytes: usize,
    /// Packets that one ACK orders at most; on paths with a round trip of more than 10 ms
    /// so many for each 10 ms, up to 32 times as many. Default 64.
    pub batch: usize,
    /// How long after the last packet the token site waits for more of them, if their sources have
    /// said that more comes at once or that nobody waits for their places. Default 2 ms: on a link
    /// of less than 6 Mbit/s an ACK orders few packets.
    pub batch_delay: Duration,
    /// The token site passes the token with a NULL ACK after this time without work, until it has
    /// gone round. Default 50 ms; the paper's is 1 s (4.2).
    pub idle_after: Duration,
    /// The token is confirmed after this time, unless an ACK has done so. Default 2 ms.
    pub confirm_after: Duration,
    /// What is missing is requested after this time: it may only be late. On long paths it is a
    /// 16th of the round trip. Default 1 ms.
    pub nack_delay: Duration,
    /// The first timeout of what needs an answer; doubled with each try. Default 20 ms.
    pub least_timeout: Duration,
    /// The longest timeout where round trips are short. On longer paths timeouts follow the
    /// measured round trip: up to twice the first timeout of a try. Default 100 ms; the paper's is
    /// 2 s (4.6).
    pub largest_timeout: Duration,
    /// So many tries in vain, and a reformation begins. Default 5; the paper's is 10 (4.4).
    pub tries: u32,
    /// How often a joiner asks, and after how many answers that did not come it begins a ring of
    /// its own. Default 5 times, 40 ms apart.
    pub join_retry: Duration,
    /// See [`Config::join_retry`].
    pub join_tries: u32,
    /// Who knows that there is a ring elsewhere does not give it up sooner: who was removed from
    /// one, or has heard of one that does not let it in, begins one itself only when it has heard
    /// of none for so long; and a part that may not go on waits so long for its own others before
    /// it joins a ring that does not descend from its own and is no larger. Members of a ring that
    /// never had its quorum leave it after this time without a majority. Default 10 s.
    pub patience: Duration,
    /// How often the initiator of a reformation asks; less often where round trips are longer.
    /// Default 20 ms.
    pub recovery_retry: Duration,
    /// How often it asks before it goes on without those who do not answer. Default 5.
    pub recovery_tries: u32,
    /// A reformation that failed begins again after a random time up to this. Default 60 ms.
    pub back_off: Duration,
    /// How often a partition that may not go on looks for the others. Default 500 ms.
    pub minority_retry: Duration,
    /// How often a ring tells nodes that are in the group and not in the ring about itself, so that
    /// two rings of one group become one. Default 500 ms.
    pub announce: Duration,
    /// How long a member that leaves waits for the others to let it go, and before that for a place
    /// for what it has sent. Default 2 s.
    pub leave_within: Duration,
    /// How long a request waits for its answer, unless it says otherwise. Default 10 s.
    pub call_patience: Duration,
    /// A request without an answer is made again after this time, and then after twice as long each
    /// time, up to 2 s. Default 500 ms.
    pub call_retry: Duration,
    /// A caller that is not a member forgets a group after this time without requests to it.
    /// Default 60 s.
    pub call_forget: Duration,
    /// Bytes of replies that are kept for callers who ask again; the last one is kept whatever its
    /// size. Default 32 MiB.
    pub reply_bytes: usize,
    /// [`RingNews::Stable`](super::RingNews::Stable) is told this often at most. Default 10 ms.
    pub stable_every: Duration,
    /// How long a member that has left answers those who still lack something. Default 500 ms.
    pub linger: Duration,
    /// The number of the first message, of the first packet and of the first request for a lock of
    /// each process: the same at all nodes of a group. Default 1. Simulations set it just below
    /// 2^31 or 2^32, so that numbers wrap early.
    pub first_number: SeqNo,
}

impl Default for Config {
    fn default() -> Self {
        let ms = Duration::from_millis;
        Self {
            path_mtu: 1500,
            message_bytes: MAX_MESSAGE_BYTES,
            queue_bytes: 32 << 20,
            window_bytes: 256 << 10,
            batch: 64,
            batch_delay: ms(2),
            idle_after: ms(50),
            confirm_after: ms(2),
            nack_delay: ms(1),
            least_timeout: ms(20),
            largest_timeout: ms(100),
            tries: 5,
            join_retry: ms(40),
            join_tries: 5,
            patience: ms(10_000),
            recovery_retry: ms(20),
            recovery_tries: 5,
            back_off: ms(60),
            minority_retry: ms(500),
            announce: ms(500),
            leave_within: ms(2000),
            call_patience: ms(10_000),
            call_retry: ms(500),
            call_forget: ms(60_000),
            reply_bytes: 32 << 20,
            stable_every: ms(10),
            linger: ms(500),
            first_number: SeqNo::FIRST,
        }
    }
}

impl Config {
    /// The timers of the paper: a NULL ACK after 1 s, timeouts up to 2 s, dead after ten tries.
    #[must_use]
    pub fn with_timers_of_the_paper(self) -> Self {
        let second = Duration::from_secs(1);
        Self { idle_after: second, largest_timeout: 2 * second, tries: 10, ..self }
    }

    /// Bytes of the largest piece of a message.
    pub(super) fn piece_bytes(&self) -> usize {
        self.datagram_bytes() - DATA_BYTES - size_of::<u64>()
    }

    /// The most runs that an ACK holds without being cut.
    pub(super) fn max_runs(&self) -> usize {
        (self.datagram_bytes() - ACK_BYTES) / RUN_BYTES
    }

    /// Bytes of the largest datagram.
    pub(super) fn datagram_bytes(&self) -> usize {
        usize::from(self.path_mtu) - UDP_AND_IP_BYTES
    }

    /// The bounds of a timeout.
    pub(super) fn timeouts(&self) -> Timeouts {
        Timeouts { least: self.least_timeout, largest: self.largest_timeout }
    }

    /// Checks the bounds.
    ///
    /// # Errors
    /// What is out of bounds.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let pauses = [
            ("least_timeout", self.least_timeout),
            ("recovery_retry", self.recovery_retry),
            ("join_retry", self.join_retry),
            ("call_retry", self.call_retry),
            ("minority_retry", self.minority_retry),
            ("announce", self.announce),
            ("idle_after", self.idle_after),
        ];
        if let Some((name, _)) = pauses.iter().find(|(_, pause)| pause.is_zero()) {
            return Err(ConfigError::Zero(name));
        }
        self.check_times()?;
        let tries = [
            ("tries", self.tries),
            ("join_tries", self.join_tries),
            ("recovery_tries", self.recovery_tries),
        ];
        if let Some((name, _)) = tries.iter().find(|(_, tries)| *tries > MAX_TRIES) {
            return Err(ConfigError::Tries(name));
        }
        let message_bytes = LEAST_MESSAGE_BYTES..=MAX_MESSAGE_BYTES;
        let mtu = usize::from(self.path_mtu);
        match () {
            () if mtu < LEAST_MTU => Err(ConfigError::PathMtu(self.path_mtu)),
            () if !message_bytes.contains(&self.message_bytes) => Err(ConfigError::MessageBytes),
            () if self.window_bytes < mtu => Err(ConfigError::WindowBytes),
            () if !(1..=MAX_BATCH).contains(&self.batch) => Err(ConfigError::Batch),
            () => Ok(()),
        }
    }

    fn check_times(&self) -> Result<(), ConfigError> {
        let times = [
            ("batch_delay", self.batch_delay),
            ("idle_after", self.idle_after),
            ("confirm_after", self.confirm_after),
            ("nack_delay", self.nack_delay),
            ("least_timeout", self.least_timeout),
            ("largest_timeout", self.largest_timeout),
            ("join_retry", self.join_retry),
            ("patience", self.patience),
            ("recovery_retry", self.recovery_retry),
            ("back_off", self.back_off),
            ("minority_retry", self.minority_retry),
            ("announce", self.announce),
            ("leave_within", self.leave_within),
            ("call_patience", self.call_patience),
            ("call_retry", self.call_retry),
            ("call_forget", self.call_forget),
            ("stable_every", self.stable_every),
            ("linger", self.linger),
        ];
        out_of_bounds(&times).map_or(Ok(()), |name| Err(ConfigError::Time(name)))
    }
}

/// Settings that cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Too small for the largest packet that cannot be cut.
    #[error("path_mtu {0}: at least 576")]
    PathMtu(u16),
    /// Too small for what a request adds to its message, or more than packets can number.
    #[error("message_bytes: 64 bytes to 16 MiB")]
    MessageBytes,
    /// Nothing could ever be sent.
    #[error("window_bytes: at least one path MTU")]
    WindowBytes,
    /// No time between two tries.
    #[error("{0}: more than zero")]
    Zero(&'static str),
    /// A time that no timer is meant for.
    #[error("{0} must be from 1 us to 24 h")]
    Time(&'static str),
    /// So many tries would hardly ever end.
    #[error("{0}: at most 1000")]
    Tries(&'static str),
    /// An ACK orders at least one packet, and keeps few sources waiting for the next one.
    #[error("batch: 1 to 64")]
    Batch,
}

pub(super) const LEAST_MTU: usize = 576;
const LEAST_MESSAGE_BYTES: usize = 64;
const MAX_MESSAGE_BYTES: usize = 16 << 20;
const UDP_AND_IP_BYTES: usize = 28;
const MAX_BATCH: usize = 64;
const MAX_TRIES: u32 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_cannot_work_are_refused() {
        let with = Config::default;
        assert_eq!(with().validate(), Ok(()));
        let refused = |config: Config| config.validate().expect_err("it cannot work");
        assert_eq!(refused(Config { path_mtu: 9, ..with() }), ConfigError::PathMtu(9));
        for message_bytes in [0, 63, (16 << 20) + 1] {
            assert_eq!(refused(Config { message_bytes, ..with() }), ConfigError::MessageBytes);
        }
        let zeros = [
            Config { announce: Duration::ZERO, ..with() },
            Config { minority_retry: Duration::ZERO, ..with() },
            Config { idle_after: Duration::ZERO, ..with() },
        ];
        for config in zeros {
            assert!(matches!(refused(config), ConfigError::Zero(_)));
        }
        let times = [
            Config { idle_after: Duration::MAX, ..with() },
            Config { idle_after: Duration::from_nanos(999), ..with() },
            Config { idle_after: Duration::from_secs(24 * 3600 + 1), ..with() },
        ];
        for config in times {
            assert_eq!(refused(config), ConfigError::Time("idle_after"));
        }
        for tries in [1001, u32::MAX] {
            assert_eq!(refused(Config { tries, ..with() }), ConfigError::Tries("tries"));
        }
        let day = Duration::from_secs(24 * 3600);
        let bounds = Config { idle_after: day, tries: 1000, ..with() };
        assert_eq!(bounds.validate(), Ok(()));
    }
}

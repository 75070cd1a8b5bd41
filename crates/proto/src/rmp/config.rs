use core::time::Duration;

use super::flow::{FragmentSizes, Timeouts};
use super::packet::{ACK_BYTES, DATA_BYTES, RUN_BYTES};
use crate::SeqNo;
use crate::bounds::{check, out_of_bounds};

/// Settings of an [`Rmp`](super::Rmp) engine. The defaults are for a local network.
///
/// Each time is from 1 us to 24 h, or zero. `least_timeout`, `idle_after`, `announce`, and the
/// times called `*_retry` must not be zero. Each number of tries is at most 1000.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Maximum size of an IP packet, in bytes, at least 576. Default: 1500.
    pub path_mtu: u16,
    /// Maximum size of a message, in bytes, from 64 bytes to 16 MiB. Default: 16 MiB.
    pub message_bytes: usize,
    /// Maximum total size of the messages that wait for the window, in bytes. The queue refuses a
    /// message that would exceed it, but an empty queue accepts any message. The requests that are
    /// kept for the next holder of a handler's lock have the same limit. Default: 32 MiB.
    pub queue_bytes: usize,
    /// Maximum number of bytes in flight, that is, sent but without a place in the order. If the
    /// round-trip time exceeds 50 ms, the maximum is this number for each 50 ms or part thereof, up
    /// to ten times. The window does not grow while packets wait in queues. At least `path_mtu`.
    /// Default: 256 KiB, for 5 MB/s.
    pub window_bytes: usize,
    /// Maximum number of packets that one ACK orders. If the round-trip time is 20 ms or more, the
    /// maximum is this number for each full 10 ms, up to 32 times. From 1 to 64. Default: 64.
    pub batch: usize,
    /// Time for which the token site waits for more packets after the last one. It waits if the
    /// sources have announced more packets or no application waits for the places. Default: 2 ms.
    /// Below 6 Mbit/s, an ACK then orders few packets.
    pub batch_delay: Duration,
    /// Time without work after which the token site passes the token with a NULL ACK. After one
    /// rotation without work, the token stays. Default: 50 ms; the paper uses 1 s (4.2).
    pub idle_after: Duration,
    /// Time after which a member that still holds the token confirms its receipt. Default: 2 ms.
    pub confirm_after: Duration,
    /// Time after which a missing packet is requested. Until then, the packet may merely be late.
    /// On a long path, a 16th of the round-trip time applies instead. Default: 1 ms.
    pub nack_delay: Duration,
    /// First timeout of a packet that requires a reply. Once the round-trip time is measured, the
    /// minimum margin that is added to it. The timeout doubles with each try. Default: 20 ms.
    pub least_timeout: Duration,
    /// Maximum timeout, unless the round-trip time is long or has not been measured. Default: 100
    /// ms; the paper uses 2 s (4.6).
    pub largest_timeout: Duration,
    /// Number of retries after which a reformation begins, if the awaited member is not heard
    /// meanwhile. Default: 5; the paper uses 10 (4.4).
    pub tries: u32,
    /// Minimum interval between two requests of a joiner. Default: 40 ms.
    pub join_retry: Duration,
    /// Number of unanswered requests after which a joiner may create its own ring. Default: 5.
    pub join_tries: u32,
    /// Time for which a node that has heard of another ring expects that ring to remain reachable.
    ///
    /// A node creates a ring only if it has heard of no other ring for this time, or if all nodes
    /// that it knows are joiners too. A part of a ring that may not continue waits this long for
    /// the missing members before it joins a ring that is no larger. After this time, the members
    /// of a ring that never had its quorum leave it. Default: 10 s.
    pub patience: Duration,
    /// Minimum interval between two requests of the initiator of a reformation. Default: 20 ms.
    pub recovery_retry: Duration,
    /// Number of requests after which the initiator ignores silent members. Default: 5.
    pub recovery_tries: u32,
    /// Maximum random part of the pause before a failed reformation is repeated. It is longer on a
    /// long path. Default: 60 ms.
    pub back_off: Duration,
    /// Maximum random part of the pause between two searches for other members by a part of a ring
    /// that may not continue. Default: 500 ms.
    pub minority_retry: Duration,
    /// Interval between two announcements of a ring to nodes that are in the group but not in the
    /// ring. Announcements let two rings of one group merge. Default: 500 ms.
    pub announce: Duration,
    /// Maximum time that a leaving member waits for its release. It is extended if the token takes
    /// longer to go around. Default: 2 s.
    pub leave_within: Duration,
    /// Time for which a request waits for its answer, unless its options set another time. Default:
    /// 10 s.
    pub call_patience: Duration,
    /// Time after which a request is repeated. The time doubles with each repetition, up to 2 s.
    /// Default: 500 ms.
    pub call_retry: Duration,
    /// Time without requests after which a guest forgets a group. Default: 60 s.
    pub call_forget: Duration,
    /// Maximum total size of the replies that are kept for repeated requests, in bytes. A single
    /// reply is kept even if it is larger. Default: 32 MiB.
    pub reply_bytes: usize,
    /// Minimum interval between two [`Stable`](crate::ring::RingNews::Stable) events. Default: 10
    /// ms.
    pub stable_every: Duration,
    /// Time for which a member that has left still answers requests for missing packets. It is
    /// extended if the token takes longer to go around. Default: 500 ms.
    pub linger: Duration,
    /// Number of the first message, packet and lock request. It must be the same at all nodes of a
    /// group. Default: 1. Simulations set it just below 2^31 or 2^32, to let numbers wrap early.
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
    /// Sets the timers of the paper: a NULL ACK after 1 s, timeouts of up to 2 s, and 10 tries.
    #[must_use]
    pub fn with_timers_of_the_paper(self) -> Self {
        let second = Duration::from_secs(1);
        Self { idle_after: second, largest_timeout: 2 * second, tries: 10, ..self }
    }

    pub(super) fn fragment_bytes(&self) -> usize {
        self.datagram_bytes() - DATA_BYTES - size_of::<u64>()
    }

    pub(super) fn fragment_sizes(&self) -> FragmentSizes {
        let largest = self.fragment_bytes();
        FragmentSizes { least: largest.min(LEAST_FRAGMENT_BYTES), largest }
    }

    pub(super) fn max_runs(&self) -> usize {
        (self.datagram_bytes() - ACK_BYTES) / RUN_BYTES
    }

    pub(super) fn datagram_bytes(&self) -> usize {
        usize::from(self.path_mtu) - UDP_AND_IP_BYTES
    }

    pub(super) fn timeouts(&self) -> Timeouts {
        Timeouts { least: self.least_timeout, largest: self.largest_timeout }
    }

    /// Checks that every setting is within its bounds.
    ///
    /// # Errors
    /// Returns the first setting that is out of bounds.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let times = self.times();
        let zero = times.iter().find(|(name, time)| time.is_zero() && NOT_ZERO.contains(name));
        if let Some((name, _)) = zero {
            return Err(ConfigError::Zero(name));
        }
        if let Some(name) = out_of_bounds(&times) {
            return Err(ConfigError::Time(name));
        }
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
        check(&[
            (mtu < LEAST_MTU, ConfigError::PathMtu(self.path_mtu)),
            (!message_bytes.contains(&self.message_bytes), ConfigError::MessageBytes),
            (self.window_bytes < mtu, ConfigError::WindowBytes),
            (!(1..=MAX_BATCH).contains(&self.batch), ConfigError::Batch),
        ])
    }

    fn times(&self) -> [(&'static str, Duration); 18] {
        [
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
        ]
    }
}

/// A setting that is out of bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The path MTU is too small for the largest packet that cannot be split.
    #[error("path_mtu {0} is invalid: expected at least 576 bytes")]
    PathMtu(u16),
    /// The value is too small for a request's header, or too large for the packets of one message.
    #[error("message_bytes must be from 64 bytes to 16 MiB")]
    MessageBytes,
    /// The window is smaller than one packet, so nothing could be sent.
    #[error("window_bytes must be at least path_mtu")]
    WindowBytes,
    /// A time that must be positive is zero.
    #[error("{0} must not be zero")]
    Zero(&'static str),
    /// A time is neither zero nor from 1 us to 24 h.
    #[error("{0} must be from 1 us to 24 h")]
    Time(&'static str),
    /// A number of tries is larger than 1000.
    #[error("{0} must be at most 1000")]
    Tries(&'static str),
    /// The batch is 0 and would order nothing, or so large that it would delay the ACKs for which
    /// sources wait.
    #[error("batch must be from 1 to 64")]
    Batch,
}

pub(super) const LEAST_MTU: usize = 576;
/// Minimum size of a fragment, in bytes: MIN_PACKET of figure 4.2.
const LEAST_FRAGMENT_BYTES: usize = 512;
const LEAST_MESSAGE_BYTES: usize = 64;
const MAX_MESSAGE_BYTES: usize = 16 << 20;
const UDP_AND_IP_BYTES: usize = 28;
const MAX_BATCH: usize = 64;
const NOT_ZERO: [&str; 7] = [
    "least_timeout",
    "recovery_retry",
    "join_retry",
    "call_retry",
    "minority_retry",
    "announce",
    "idle_after",
];
const MAX_TRIES: u32 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_cannot_work_are_refused() {
        let with = Config::default;
        assert_eq!(with().validate(), Ok(()));
        let refused = |config: Config| config.validate().expect_err("the settings are invalid");
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

//! The settings that RMTP, LBRM and TMTP have in common.

use core::time::Duration;

use super::hierarchy::Hierarchy;
use crate::Owed;
use crate::block::BLOCK_HEADER_BYTES;
use crate::guest::REPAIR_BYTES;

/// Who answers for whom, how repairs are sent, and what is kept.
#[derive(Clone, Debug, PartialEq)]
pub struct DomainConfig {
    /// Who answers for whom.
    pub hierarchy: Hierarchy,
    /// Bytes of the largest IP packet on the path. It limits the payload.
    pub path_mtu: u16,
    /// How long a missing packet is not asked for after the gap was seen. Zero: losses are detected
    /// at once. Longer lets packets come that were only overtaken.
    pub detect_after: Duration,
    /// How long a head gathers requests for a packet before it repairs it to all who asked. Longer
    /// makes fewer repairs, and later ones.
    pub gather_for: Duration,
    /// How long a head ignores further requests of those to whom it has repaired a packet: those
    /// are on the way that were sent before the repair came. At least a round trip.
    pub hold_down: Duration,
    /// How often a member asks in vain before it asks the next one above. LBRM and TMTP wait twice
    /// as long for the same node each time.
    pub climb_after: u32,
    /// How long a missing packet is hoped for; then it is lost.
    pub give_up_after: Duration,
    /// How long packets are kept to be repaired.
    pub retain_for: Duration,
    /// Bytes of memory for them.
    pub retain_bytes: usize,
    /// From where on a receiver is owed a sender's messages.
    pub owed: Owed,
    /// Packets of one stream that may be missing at a time; older ones are lost then.
    pub max_missing: usize,
    /// Senders that are heard in one group; others are refused and counted.
    pub max_streams: usize,
}

/// When a repair for several goes to all of them by one multicast in the domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepairBy {
    /// When that crosses fewer links than one packet to each who asked, as the RDCM paper has it in
    /// favour of RMTP and LBRM (section 4.1).
    FewerLinks,
    /// When more than so many asked.
    Threshold(usize),
}

/// Why a [`DomainConfig`] cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DomainError {
    /// No message would fit.
    #[error("path_mtu {0} leaves no room for a message; at least 200 is needed")]
    PathMtu(u16),
    /// Requests that are on the way would be answered again and again.
    #[error("hold_down must be above 0")]
    HoldDown,
    /// Nothing could be asked, missing or heard.
    #[error("climb_after, max_missing and max_streams must be at least 1")]
    Bounds,
}

/// Bytes of the IP and UDP headers.
const IP_UDP_BYTES: usize = 28;
const MIN_PATH_MTU: u16 = 200;

impl Default for DomainConfig {
    /// One domain, for a local network: round trips of at most some milliseconds.
    fn default() -> Self {
        Self {
            hierarchy: Hierarchy::flat(),
            path_mtu: 1500,
            detect_after: Duration::ZERO,
            gather_for: Duration::from_millis(1),
            hold_down: Duration::from_millis(10),
            climb_after: 4,
            give_up_after: Duration::from_secs(30),
            retain_for: Duration::from_secs(60),
            retain_bytes: 16 << 20,
            owed: Owed::FirstHeard,
            max_missing: 4096,
            max_streams: 1024,
        }
    }
}

impl DomainConfig {
    /// Checks that the settings can be used.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn validate(&self) -> Result<(), DomainError> {
        if self.path_mtu < MIN_PATH_MTU {
            return Err(DomainError::PathMtu(self.path_mtu));
        }
        if self.hold_down.is_zero() {
            return Err(DomainError::HoldDown);
        }
        if self.climb_after == 0 || self.max_missing == 0 || self.max_streams == 0 {
            return Err(DomainError::Bounds);
        }
        Ok(())
    }

    /// Bytes of the largest datagram that fits the path MTU.
    pub fn max_datagram_bytes(&self) -> usize {
        usize::from(self.path_mtu) - IP_UDP_BYTES
    }

    /// Bytes of the largest message: a repair of it fits the path MTU.
    pub fn payload_limit(&self) -> usize {
        self.max_datagram_bytes() - REPAIR_BYTES - BLOCK_HEADER_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_cannot_work_are_refused() {
        assert_eq!(DomainConfig::default().validate(), Ok(()));
        let refused = |config: DomainConfig| config.validate().expect_err("it cannot work");
        let with = DomainConfig::default;
        assert_eq!(refused(DomainConfig { path_mtu: 9, ..with() }), DomainError::PathMtu(9));
        let hold_down = Duration::ZERO;
        assert_eq!(refused(DomainConfig { hold_down, ..with() }), DomainError::HoldDown);
        assert_eq!(refused(DomainConfig { climb_after: 0, ..with() }), DomainError::Bounds);
    }
}

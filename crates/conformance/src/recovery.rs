//! Parameters of the phase after the faults, in which all groups must recover.

use core::time::Duration;

use carom_proto::loss::Loss;

/// Loss that remains in a healed network, to exercise repairs and requests.
pub(crate) const USUAL_LOSS: Loss = Loss::Uniform(0.03);
/// Minimum time for which this loss lasts after the last message.
pub(crate) const LOSSY_FOR: Duration = Duration::from_secs(1);
/// Number of messages, at each level, that each member sends in each group of the healed world.
pub(crate) const LAST_MESSAGES: u32 = 3;
/// Time in which gossip agrees. Failed members are probed again, and their states spread.
pub(crate) const AGREE_WITHIN: Duration = Duration::from_secs(40);
pub(crate) const LEAST_PAUSE: Duration = Duration::from_millis(200);

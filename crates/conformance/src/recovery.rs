//! Parameters of the phase after the faults, in which all groups must recover.

use core::time::Duration;

use carom_proto::loss::Loss;

/// Loss that remains in a healed network, to exercise repairs and requests.
pub(crate) const USUAL_LOSS: Loss = Loss::Uniform(0.03);
/// Minimum time for which this loss lasts after the last message.
pub(crate) const LOSSY_FOR: Duration = Duration::from_secs(1);
/// Number of messages, of each level if there are several, that every member sends in each of its
/// groups in the healed world.
pub(crate) const LAST_MESSAGES: u32 = 3;
/// Time after the faults in which the views of gossiping members agree. A failed member is probed
/// repeatedly, and its state takes time to spread.
pub(crate) const AGREE_WITHIN: Duration = Duration::from_secs(40);
/// Pause in which members react to a change.
pub(crate) const LEAST_PAUSE: Duration = Duration::from_millis(200);

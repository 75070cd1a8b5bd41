//! The connection from the handles of a node to its driver.

use carom_proto::Time;

use super::commands::NodeCommand;
use super::timers::TimerQueue;

pub(crate) trait DriverHandle: Send + Sync {
    /// Sends a command. A command to a closed node is dropped, with its reply channel.
    fn send(&self, command: NodeCommand);

    /// Wakes the node for work that no command announces.
    fn wake(&self);

    fn timers_changed(&self);

    fn now(&self) -> Time;

    fn timers(&self) -> &TimerQueue;

    /// Returns `false` if the node makes no progress while the calling thread waits.
    fn runs_without_caller(&self) -> bool;

    /// Returns `false` in a simulated world, where a call that blocks would never return.
    fn may_block(&self) -> bool;
}

//! The connection from the handles of a node to what drives it.

use carom_proto::Time;

use super::commands::NodeCommand;
use super::timers::TimerQueue;

/// Access to the driver of one node: a thread with sockets, or a simulated world.
pub(crate) trait DriverHandle: Send + Sync {
    /// Sends a command to the node, if it still exists. Otherwise the command is dropped, with its
    /// reply channel.
    fn send(&self, command: NodeCommand);

    /// Wakes the node for work that no command announces.
    fn wake(&self);

    /// Reports that the earliest timer has changed.
    fn timers_changed(&self);

    /// Returns the time of the node's clock.
    fn now(&self) -> Time;

    /// Returns the timers of tasks that sleep by the node's clock.
    fn timers(&self) -> &TimerQueue;

    /// Returns `true` if the node makes progress while the calling thread waits for it. A task that
    /// the driver has woken runs on the driver's thread, which must not wait for itself.
    fn runs_without_caller(&self) -> bool;

    /// Returns `false` if a call that blocks the thread would never return.
    fn may_block(&self) -> bool;
}

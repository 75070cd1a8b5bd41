//! The connection from the handles of a node to its driver.

use carom_proto::Time;

use crate::alarms::Alarms;
use crate::command::{Command, NodeCommand};
use crate::driver::Driver;
#[cfg(feature = "sim")]
use crate::sim::Line;

/// Access of handles to their node.
pub(crate) enum Home {
    /// A thread that owns the node's sockets, and the node's key there.
    Thread { driver: Driver, key: usize },
    #[cfg(feature = "sim")]
    Simulated(Line),
}

impl Home {
    /// Sends a command to the node, if it still exists. Otherwise the command is dropped, with its
    /// reply channel.
    pub(crate) fn tell(&self, command: NodeCommand) {
        match self {
            Self::Thread { driver, key } => {
                driver.command(Command::Node { key: *key, command });
            }
            #[cfg(feature = "sim")]
            Self::Simulated(line) => line.tell(command),
        }
    }

    /// Wakes the node for work that no command announces.
    pub(crate) fn wake(&self) {
        match self {
            Self::Thread { driver, .. } => driver.wake(),
            #[cfg(feature = "sim")]
            Self::Simulated(line) => line.wake(),
        }
    }

    /// Reports that the earliest timer has changed.
    pub(crate) fn alarms_have_changed(&self) {
        match self {
            Self::Thread { driver, .. } => driver.wake(),
            // The world checks the timers before it advances the time.
            #[cfg(feature = "sim")]
            Self::Simulated(_) => {}
        }
    }

    pub(crate) fn now(&self) -> Time {
        match self {
            Self::Thread { driver, .. } => driver.now(),
            #[cfg(feature = "sim")]
            Self::Simulated(line) => line.now(),
        }
    }

    /// Returns the timers of tasks that sleep by the node's clock.
    pub(crate) fn alarms(&self) -> &Alarms {
        match self {
            Self::Thread { driver, .. } => driver.alarms(),
            #[cfg(feature = "sim")]
            Self::Simulated(line) => line.alarms(),
        }
    }

    /// Returns `true` if the node makes progress while the calling thread waits for it. A task that
    /// the driver has woken runs on the driver's thread, which must not wait for itself.
    pub(crate) fn moves_without_caller(&self) -> bool {
        match self {
            Self::Thread { driver, .. } => !driver.is_this_thread(),
            #[cfg(feature = "sim")]
            Self::Simulated(_) => false,
        }
    }

    /// Refuses a call that would block forever.
    ///
    /// # Panics
    /// If the node is simulated.
    #[track_caller]
    #[cfg_attr(not(feature = "sim"), expect(unused_variables, reason = "only threads block"))]
    pub(crate) fn must_not_block(&self, call: &str, instead: &str) {
        match self {
            Self::Thread { .. } => {}
            #[cfg(feature = "sim")]
            Self::Simulated(_) => {
                panic!("{call} would block the thread that runs the simulated world: use {instead}")
            }
        }
    }
}

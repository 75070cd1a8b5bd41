//! Where a node lives: who drives it.

use carom_proto::Time;

use crate::alarms::Alarms;
use crate::command::{Command, NodeCommand};
use crate::driver::Driver;
#[cfg(feature = "sim")]
use crate::sim::Line;

/// What the handles of a node reach it through.
pub(crate) enum Home {
    /// A thread that owns its sockets, and the node's key there.
    Thread { driver: Driver, key: usize },
    /// A simulated world.
    #[cfg(feature = "sim")]
    Simulated(Line),
}

impl Home {
    /// Tells the node, if it still is there. A command that nobody answers is dropped, and its
    /// reply with it.
    pub(crate) fn tell(&self, command: NodeCommand) {
        match self {
            Self::Thread { driver, key } => {
                driver.command(Command::Node { key: *key, command });
            }
            #[cfg(feature = "sim")]
            Self::Simulated(line) => line.tell(command),
        }
    }

    /// The node has something to do that it was not told by a command.
    pub(crate) fn wake(&self) {
        match self {
            Self::Thread { driver, .. } => driver.wake(),
            #[cfg(feature = "sim")]
            Self::Simulated(line) => line.wake(),
        }
    }

    /// The earliest alarm is another one.
    pub(crate) fn alarms_have_changed(&self) {
        match self {
            Self::Thread { driver, .. } => driver.wake(),
            // The world looks at the alarms before it lets time pass.
            #[cfg(feature = "sim")]
            Self::Simulated(_) => {}
        }
    }

    /// The node's clock.
    pub(crate) fn now(&self) -> Time {
        match self {
            Self::Thread { driver, .. } => driver.now(),
            #[cfg(feature = "sim")]
            Self::Simulated(line) => line.now(),
        }
    }

    /// Who sleeps by the node's clock.
    pub(crate) fn alarms(&self) -> &Alarms {
        match self {
            Self::Thread { driver, .. } => driver.alarms(),
            #[cfg(feature = "sim")]
            Self::Simulated(line) => line.alarms(),
        }
    }

    /// Whether the node moves on while the calling thread waits for it. A task that the driver
    /// itself woke runs on its thread, which must not wait for itself.
    pub(crate) fn moves_without_caller(&self) -> bool {
        match self {
            Self::Thread { driver, .. } => !driver.is_this_thread(),
            #[cfg(feature = "sim")]
            Self::Simulated(_) => false,
        }
    }

    /// Refuses a call that would block for ever.
    ///
    /// # Panics
    /// If the node is simulated.
    #[track_caller]
    #[cfg_attr(not(feature = "sim"), expect(unused_variables, reason = "only threads block"))]
    pub(crate) fn must_not_block(&self, call: &str, instead: &str) {
        match self {
            Self::Thread { .. } => {}
            #[cfg(feature = "sim")]
            Self::Simulated(_) => panic!(
                "{call} blocks the thread on which alone a simulated world moves: use {instead}"
            ),
        }
    }
}

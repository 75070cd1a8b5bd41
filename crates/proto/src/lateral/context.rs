//! Timers of the engine.

use crate::lateral::groups::GroupIx;
use crate::lateral::streams::StreamIx;

/// A timer. Each is set at most once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TimerKey {
    Heartbeat(GroupIx),
    Patience(GroupIx),
    Open(StreamIx),
    Reassembly(StreamIx),
    Pace,
    Joiners(GroupIx),
}

impl TimerKey {
    /// Returns the reason for the wakeup.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Heartbeat(_) => "heartbeat",
            Self::Patience(_) => "lagging members",
            Self::Open(_) => "open a stream",
            Self::Reassembly(_) => "reassembly of a message",
            Self::Pace => "pacing of fragments",
            Self::Joiners(_) => "end of the stream for joiners",
        }
    }
}

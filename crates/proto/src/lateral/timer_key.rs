//! Timers of the engine.

use super::groups::GroupIx;
use super::streams::StreamIx;

/// A timer. Each is set at most once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TimerKey {
    Heartbeat(GroupIx),
    Patience(GroupIx),
    Open(StreamIx),
    Assembly(StreamIx),
    Pace,
    Joiners(GroupIx),
}

impl TimerKey {
    /// Returns the reason for the wakeup.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::Heartbeat(_) => "heartbeat",
            Self::Patience(_) => "lagging members",
            Self::Open(_) => "open a stream",
            Self::Assembly(_) => "reassembly of a message",
            Self::Pace => "pacing of fragments",
            Self::Joiners(_) => "end of the stream for joiners",
        }
    }
}

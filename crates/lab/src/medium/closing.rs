use std::fmt;

use carom_terminal::counted;
use serde::Serialize;

/// The drops and the lag of all worlds of a lab.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Closing {
    /// Number of datagrams that the kernel dropped at full buffers of sockets.
    pub(crate) kernel_drops: u64,
    /// Longest time by which a timer, a message or a fault was late, in milliseconds.
    pub(crate) lag_ms: f64,
}

impl fmt::Display for Closing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kernel_drops, lag_ms } = self;
        write!(
            f,
            "on real sockets: {} dropped by the kernel, events at most {lag_ms:.1} ms late",
            counted(kernel_drops, "datagram")
        )
    }
}

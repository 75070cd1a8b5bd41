//! Sockets in network namespaces, as a medium for the worlds of `carom-sim`: engines, scenarios
//! and checkers of the simulator run on them unchanged.

#[cfg(target_os = "linux")]
mod account;
#[cfg(target_os = "linux")]
mod groups;
#[cfg(target_os = "linux")]
mod lab_media;
#[cfg(not(target_os = "linux"))]
mod no_media;
#[cfg(target_os = "linux")]
mod sender;
#[cfg(target_os = "linux")]
mod sockets;

#[cfg(target_os = "linux")]
pub(crate) use lab_media::LabMedia;
#[cfg(not(target_os = "linux"))]
pub(crate) use no_media::LabMedia;

/// What distinguished the worlds of a lab from simulated ones.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub(crate) struct Closing {
    /// Number of datagrams that the kernel dropped at full buffers of sockets.
    pub(crate) kernel_drops: u64,
    /// Longest time by which a timer, a message or a fault was late, in milliseconds.
    pub(crate) lag_ms: f64,
}

impl std::fmt::Display for Closing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kernel_drops, lag_ms } = self;
        write!(
            f,
            "on real sockets: {} dropped by the kernel, events at most {lag_ms:.1} ms late",
            carom_terminal::counted(kernel_drops, "datagram")
        )
    }
}

/// Maximum number of hosts in a lab for worlds.
pub(crate) const MAX_HOSTS: u32 = 249;

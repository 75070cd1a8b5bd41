//! Sockets in network namespaces, as a medium for the worlds of `carom-sim`: engines, scenarios
//! and checkers of the simulator run on them unchanged.

#[cfg(target_os = "linux")]
mod account;
mod closing;
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

pub(crate) use closing::Closing;
#[cfg(target_os = "linux")]
pub(crate) use lab_media::LabMedia;
#[cfg(not(target_os = "linux"))]
pub(crate) use no_media::LabMedia;

/// Maximum number of hosts in a lab for worlds.
pub(crate) const MAX_HOSTS: u32 = 249;

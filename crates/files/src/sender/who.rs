//! Identity of a receiver.

use std::net::IpAddr;

/// Identity of a receiver, as given in its hello.
#[derive(Clone)]
pub(crate) struct Who {
    pub(crate) name: String,
    /// Hash of its host name and target directory.
    pub(crate) place: [u8; 16],
    pub(crate) host: IpAddr,
}

impl Who {
    /// Returns `true` if the receiver has this place and host address.
    pub(crate) fn is(&self, place: [u8; 16], host: IpAddr) -> bool {
        self.place == place && self.host == host
    }
}

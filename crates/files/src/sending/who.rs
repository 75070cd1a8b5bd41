//! Who a receiver is.

use std::net::IpAddr;

/// What a receiver says of itself when it connects.
#[derive(Clone)]
pub(crate) struct Who {
    pub(crate) name: String,
    /// Which directory of which machine it receives into, as it says.
    pub(crate) place: [u8; 16],
    pub(crate) host: IpAddr,
}

impl Who {
    /// Whether this is the one that receives into that place of that host.
    pub(crate) fn is(&self, place: [u8; 16], host: IpAddr) -> bool {
        self.place == place && self.host == host
    }
}

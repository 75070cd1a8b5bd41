use std::net::IpAddr;

#[derive(Clone)]
pub(crate) struct Who {
    pub(crate) name: String,
    pub(crate) place: [u8; 16],
    pub(crate) host: IpAddr,
}

impl Who {
    pub(crate) fn is(&self, place: [u8; 16], host: IpAddr) -> bool {
        self.place == place && self.host == host
    }
}

//! What a control process is started with.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use carom_proto::membership::service::server::ServerConfig;

/// Settings of a control process.
#[derive(Clone, Debug)]
pub struct Options {
    /// The folder of the embedded store; made if it is not there.
    pub directory: PathBuf,
    /// Where nodes connect to, by TCP. Default: any address of the host, port 7402; port 0 takes
    /// any free one.
    pub listen: SocketAddr,
    /// The address that nodes are told, if it is not the one listened at. Default: where any
    /// address is listened at, the first of the host that is not loopback.
    pub advertise: Option<SocketAddr>,
    /// Where `/status`, `/members` and `/metrics` are served by HTTP; `None`: nowhere. Whoever
    /// reaches it can read who is in which group. Default: port 7403 of loopback.
    pub http: Option<SocketAddr>,
    /// The settings of the service itself.
    pub server: ServerConfig,
    /// The seed of random choices. Default: from the operating system.
    pub seed: Option<u64>,
}

/// The TCP port of the service.
pub const DEFAULT_PORT: u16 = 7402;
/// The port of status and metrics.
pub const DEFAULT_HTTP_PORT: u16 = 7403;

impl Options {
    /// The defaults, with the store in `directory`.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            listen: SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), DEFAULT_PORT),
            advertise: None,
            http: Some(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), DEFAULT_HTTP_PORT)),
            server: ServerConfig::default(),
            seed: None,
        }
    }
}

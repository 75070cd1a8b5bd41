//! What a control process is started with.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use carom_proto::membership::service::server::ServerConfig;

/// Settings of a control process.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the state is kept.
    pub store: StoreOptions,
    /// Whether an embedded store that has lost its data, or is damaged, is put aside and an empty
    /// one begun: nodes that run join again by themselves. A store that can be read is kept.
    /// Default: false, which makes it an error.
    pub new_store: bool,
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

/// Where the state of a control process is kept.
#[derive(Clone, Debug)]
pub enum StoreOptions {
    /// In a folder of its own, which is made if it is not there: the process owns all partitions.
    Embedded(PathBuf),
    /// In etcd, which any number of processes share. Needs the feature `etcd`.
    Etcd(EtcdOptions),
}

/// Which etcd, and how to be let in.
#[derive(Clone)]
pub struct EtcdOptions {
    /// Its client addresses, `http://HOST:PORT` or `https://HOST:PORT`: as many as are known.
    pub urls: Vec<String>,
    /// For how long this process may be away from etcd until others take its partitions, in whole
    /// seconds; etcd makes it longer than its own elections. Default: 5 s.
    pub lease: Duration,
    /// Name and password. Default: none.
    pub user: Option<(String, String)>,
    /// File with the certificate, in PEM, of who signed etcd's; for `https`.
    pub ca: Option<PathBuf>,
    /// Files with this process's own certificate and key, in PEM; for `https`.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// The TCP port of the service.
pub const DEFAULT_PORT: u16 = 7402;
/// The port of status and metrics.
pub const DEFAULT_HTTP_PORT: u16 = 7403;

impl Options {
    /// The defaults, with the store in `directory`.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            store: StoreOptions::Embedded(directory.into()),
            new_store: false,
            listen: SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), DEFAULT_PORT),
            advertise: None,
            http: Some(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), DEFAULT_HTTP_PORT)),
            server: ServerConfig::default(),
            seed: None,
        }
    }
}

impl EtcdOptions {
    /// The defaults, with etcd at these addresses.
    pub fn new(urls: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let urls = urls.into_iter().map(Into::into).collect();
        Self { urls, lease: Duration::from_secs(5), user: None, ca: None, identity: None }
    }
}

impl fmt::Debug for EtcdOptions {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.user.as_ref().map(|(name, _)| name);
        let Self { urls, lease, ca, identity, .. } = self;
        f.debug_struct("EtcdOptions")
            .field("urls", urls)
            .field("lease", lease)
            .field("user", &user)
            .field("ca", ca)
            .field("identity", identity)
            .finish()
    }
}

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use carom_proto::membership::service::server::ServerConfig;

use crate::tree_command::TreeCommand;

/// Settings of a registry process.
#[derive(Clone, Debug)]
pub struct Options {
    /// Store for the state of the registry.
    pub store: StoreOptions,
    /// `true` to replace an embedded store that is lost or cannot be opened because of damage. Its
    /// file, if any, is moved aside, and running nodes join again. Any other store is kept.
    /// Default: `false`, which makes a lost or damaged store an error.
    pub new_store: bool,
    /// TCP address for nodes. Port 0 selects a free port. Default: 0.0.0.0:7402.
    pub listen: SocketAddr,
    /// Address announced to nodes, if it differs from the bound one. Default: `None`, the bound
    /// address or, if it is unspecified, the host's first IPv4 address that is not loopback.
    pub advertise: Option<SocketAddr>,
    /// Address of the HTTP server for `/status`, `/members`, `/metrics` and `/link`. `None`
    /// disables the server. Every host that can reach it can list the members. Default: port 7403
    /// on loopback.
    pub http: Option<SocketAddr>,
    /// `true` to accept reports on links (`/link`) from every host that can reach the HTTP server.
    /// Default: `false`, which accepts them from the registry's own host.
    pub remote_link_reports: bool,
    /// Command that installs the multicast trees of bulk groups in the network. It has an effect
    /// only if `server.network` is set. Default: `None`.
    pub on_tree: Option<TreeCommand>,
    /// Settings of the registry's decisions, such as the cluster name and the detection time.
    pub server: ServerConfig,
    /// Seed of random choices. Default: `None`, a seed from the operating system.
    pub seed: Option<u64>,
}

/// Store for the state of a registry process.
#[derive(Clone, Debug)]
pub enum StoreOptions {
    /// Embedded store in this directory, created if missing. The process owns all partitions.
    Embedded(PathBuf),
    /// Store in etcd, shared by any number of processes. Requires the feature `etcd`.
    Etcd(EtcdOptions),
}

/// Addresses, lease and credentials for etcd.
#[derive(Clone)]
pub struct EtcdOptions {
    /// Client addresses of all etcd members: `http://HOST:PORT` or `https://HOST:PORT`. If a member
    /// does not answer, another one is used.
    pub urls: Vec<String>,
    /// Time for which this process may be disconnected from etcd before other processes take over
    /// its partitions. It is rounded down to whole seconds, but is at least 1 s. Etcd raises it to
    /// its own minimum, which depends on its election timeout. Default: 5 s.
    pub lease: Duration,
    /// User name and password. Default: none.
    pub user: Option<(String, String)>,
    /// File with the CA certificate (PEM) of the etcd servers. Required for `https`. Default: none.
    pub ca: Option<PathBuf>,
    /// Files with the client certificate and its key (PEM). Ignored without `ca`. Default: none.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// Default TCP port for nodes.
pub const DEFAULT_PORT: u16 = 7402;
/// Default TCP port for status and metrics.
pub const DEFAULT_HTTP_PORT: u16 = 7403;

impl Options {
    /// Returns the default settings, with an embedded store in `directory`.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            store: StoreOptions::Embedded(directory.into()),
            new_store: false,
            listen: SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), DEFAULT_PORT),
            advertise: None,
            http: Some(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), DEFAULT_HTTP_PORT)),
            remote_link_reports: false,
            on_tree: None,
            server: ServerConfig::default(),
            seed: None,
        }
    }
}

impl EtcdOptions {
    /// Returns the default settings for etcd at the given client addresses.
    pub fn new(urls: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let urls = urls.into_iter().map(Into::into).collect();
        Self { urls, lease: Duration::from_secs(5), user: None, ca: None, identity: None }
    }
}

impl fmt::Debug for EtcdOptions {
    /// Omits the password.
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

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::thread::{self, JoinHandle};

use carom_proto::membership::service::server::{Server, ServerConfig};
use carom_proto::rdcm::manager::LinkState;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot, watch};

use crate::descriptors::Descriptors;
use crate::embedded::EmbeddedStore;
use crate::error::{RegistryError, StoreError};
#[cfg(feature = "etcd")]
use crate::etcd::{EtcdStore, MAX_COMMIT_CHANGES};
use crate::http::{self, LinkAnswer, StatusRequest};
use crate::links::{self, Links};
use crate::options::{Options, StoreOptions};
use crate::process::{Inputs, Process};
use crate::store::Store;
use crate::tree_command::{TreeCommand, TreeCommands};
use crate::writer::Writer;

/// A running registry process.
///
/// Dropping it ends the process like [`Registry::stop`], but ignores errors.
#[derive(Debug)]
pub struct Registry {
    address: SocketAddr,
    http: Option<SocketAddr>,
    trouble: watch::Receiver<Option<String>>,
    requests: mpsc::Sender<StatusRequest>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Result<(), StoreError>>>,
}

struct ProcessParts {
    runtime: Runtime,
    listener: TcpListener,
    http: Option<TcpListener>,
    address: SocketAddr,
    config: ServerConfig,
    descriptors: Descriptors,
    seed: u64,
    on_tree: Option<TreeCommand>,
    remote_reports: bool,
}

const ACCEPTED: usize = 128;
const REPORTS: usize = 1024;
const HTTP_REQUESTS: usize = 16;
const COMMAND_ENDS: usize = 16;

impl Registry {
    /// Starts a registry process.
    ///
    /// With an embedded store, it owns all partitions. With etcd, it owns its share of them once it
    /// is registered.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read or belongs to another cluster, if an address
    /// cannot be bound, or if the system cannot create a thread. No thread is then left running.
    ///
    /// # Panics
    /// Panics if a field of `options.server` is out of its documented bounds.
    pub fn start(options: Options) -> Result<Self, RegistryError> {
        let Options { store, new_store, server: config, .. } = &options;
        let config = ServerConfig { installs_trees: options.on_tree.is_some(), ..config.clone() };
        match store {
            StoreOptions::Embedded(directory) => {
                let (cluster, partitions) = (&config.cluster, config.partitions);
                let store = EmbeddedStore::open(directory, cluster, partitions, *new_store)?;
                let parts = ProcessParts::new(config, &options)?;
                let (sender, reports) = mpsc::channel(REPORTS);
                let partitions = parts.config.partitions;
                let writer = Writer::start(store, partitions, parts.address, sender)?;
                parts.launch(writer, reports)
            }
            #[cfg(feature = "etcd")]
            StoreOptions::Etcd(etcd) => {
                let max_changes = config.max_commit_changes.min(MAX_COMMIT_CHANGES);
                let config = ServerConfig { max_commit_changes: max_changes, ..config };
                let parts = ProcessParts::new(config, &options)?;
                let (sender, reports) = mpsc::channel(REPORTS);
                let store = EtcdStore::open(etcd, &parts.config, parts.address, sender);
                let store = parts.runtime.block_on(store)?;
                parts.launch(store, reports)
            }
            #[cfg(not(feature = "etcd"))]
            StoreOptions::Etcd(_) => Err(StoreError::NotBuilt.into()),
        }
    }

    /// Returns the TCP address that is announced to nodes.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the address of the HTTP server for status and metrics, if it is enabled.
    pub fn http(&self) -> Option<SocketAddr> {
        self.http
    }

    /// Returns the current problem of the store, if any. While the process cannot serve because of
    /// it, nodes continue with the members that they know.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.borrow().clone()
    }

    /// Reports the state of the links between two switches, racks or hosts, given by their names in
    /// the topology, to the multicast manager. A link that is down is taken out of all multicast
    /// trees at once, until it is reported as up. Returns the number of links.
    ///
    /// Call this at every process of a cluster, because any of them can take over the manager.
    ///
    /// # Errors
    /// Returns an error if there are no such links, or if this process has no multicast manager.
    ///
    /// # Panics
    /// Panics if it is called in an asynchronous task, because it blocks.
    pub fn report_link(&self, a: &str, b: &str, state: LinkState) -> Result<usize, RegistryError> {
        let (reply, answer) = oneshot::channel();
        let ends = [a, b].map(str::to_owned);
        let sent = self.requests.blocking_send(StatusRequest::Link { ends, state, reply });
        let answer = sent.ok().and_then(|()| answer.blocking_recv().ok());
        match answer {
            Some(LinkAnswer::Done(links)) => Ok(links),
            Some(LinkAnswer::Refused(error)) => Err(error.into()),
            Some(LinkAnswer::NoManager) | None => Err(RegistryError::NoManager),
        }
    }

    /// Returns `true` if the process has ended because of an error or a panic.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits until the process ends.
    ///
    /// # Errors
    /// Returns an error if the store can no longer be used, or if the process panicked.
    pub fn wait(mut self) -> Result<(), RegistryError> {
        let ended = self.thread.take().map_or(Ok(Ok(())), JoinHandle::join);
        Ok(ended.map_err(|_| RegistryError::Panicked)??)
    }

    /// Stores and acknowledges the requests received so far, if possible within 1 s, and ends the
    /// process.
    ///
    /// # Errors
    /// Returns the same errors as [`Registry::wait`].
    pub fn stop(mut self) -> Result<(), RegistryError> {
        self.request_stop();
        self.wait()
    }

    fn request_stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // The process may have ended already.
            let _ = stop.send(());
        }
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.request_stop();
        if let Some(thread) = self.thread.take() {
            // Callers that need the result use `stop`.
            let _ = thread.join();
        }
    }
}

impl ProcessParts {
    fn new(config: ServerConfig, options: &Options) -> Result<Self, RegistryError> {
        let runtime =
            Builder::new_current_thread().enable_all().build().map_err(RegistryError::Start)?;
        let listener = bind(&runtime, "--listen", options.listen)?;
        let listened = listener.local_addr().map_err(RegistryError::Start)?;
        let address = options.advertise.unwrap_or_else(|| reachable(listened));
        let http = options.http.map(|http| bind(&runtime, "--http", http)).transpose()?;
        let seed = options.seed.unwrap_or_else(system_random);
        let descriptors = Descriptors::of_process();
        let config = ServerConfig {
            max_links: config.max_links.min(descriptors.links),
            max_new_links: config.max_new_links.min(descriptors.new_links),
            ..config
        };
        let on_tree = options.on_tree.clone();
        let remote_reports = options.remote_link_reports;
        Ok(Self {
            runtime,
            listener,
            http,
            address,
            config,
            descriptors,
            seed,
            on_tree,
            remote_reports,
        })
    }

    fn launch<S>(
        self,
        store: S,
        reports: mpsc::Receiver<S::Report>,
    ) -> Result<Registry, RegistryError>
    where
        S: Store + Send + 'static,
        S::Report: 'static,
    {
        let Self { runtime, listener, http, address, config, descriptors, seed, .. } = self;
        let http_address = http.as_ref().map(TcpListener::local_addr).transpose();
        let http_address = http_address.map_err(RegistryError::Start)?;
        let (links, arrivals) = Links::new();
        let (accepted_sender, accepted) = mpsc::channel(ACCEPTED);
        let (requests_sender, requests) = mpsc::channel(HTTP_REQUESTS);
        let (ends_sender, commands) = mpsc::channel(COMMAND_ENDS);
        let trees = self.on_tree.map(|command| TreeCommands::new(command, ends_sender));
        let (stop_sender, stop) = oneshot::channel();
        let (trouble_sender, trouble) = watch::channel(None);
        let inputs = Inputs { accepted, arrivals, reports, requests, commands, stop };
        let requester = requests_sender.clone();
        let server = Server::new(config.clone(), seed);
        let process = Process::new(server, config, links, trees, store, address, trouble_sender);
        let limits = http::Limits {
            connections: descriptors.http,
            accepts_remote_reports: self.remote_reports,
        };
        let serve = move || {
            runtime.spawn(links::accept(listener, accepted_sender));
            if let Some(http) = http {
                runtime.spawn(http::serve(http, requests_sender, limits));
            }
            runtime.block_on(process.run(inputs))
        };
        let thread = thread::Builder::new().name("carom-registry".into()).spawn(serve);
        let thread = Some(thread.map_err(RegistryError::Start)?);
        let stop = Some(stop_sender);
        Ok(Registry { address, http: http_address, trouble, requests: requester, stop, thread })
    }
}

fn bind(
    runtime: &Runtime,
    flag: &'static str,
    address: SocketAddr,
) -> Result<TcpListener, RegistryError> {
    let listener = runtime.block_on(TcpListener::bind(address));
    listener.map_err(|error| RegistryError::Listen { flag, address, error })
}

/// Returns the address at which other hosts reach a socket bound to `listened`.
fn reachable(listened: SocketAddr) -> SocketAddr {
    if listened.ip().is_unspecified() {
        SocketAddr::new(first_address().into(), listened.port())
    } else {
        listened
    }
}

fn first_address() -> Ipv4Addr {
    let interfaces = nix::ifaddrs::getifaddrs().into_iter().flatten();
    let mut addresses = interfaces.filter_map(|interface| {
        let address = *interface.address?.as_sockaddr_in()?;
        Some(IpAddr::V4(address.ip())).filter(|ip| !ip.is_loopback()).and(Some(address.ip()))
    });
    addresses.next().unwrap_or(Ipv4Addr::LOCALHOST)
}

/// Returns 64 random bits of the system, from the keys of the standard library's hasher.
pub(crate) fn system_random() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
#[path = "registry_tests.rs"]
mod tests;

//! The settings of a node.

mod membership;
#[cfg(feature = "sim")]
mod simulated;
mod sockets;

use std::fmt;
use std::net::SocketAddr;

use carom_proto::loss::Loss;
use carom_proto::membership::service::frame::MAX_TEXT_BYTES;
use carom_proto::{Engine, NodeId, Origin, lateral, rdcm, rmp};

use super::node::Node;
use crate::runtime::driver::Driver;
use crate::shared::addressing::{DEFAULT_MULTICAST_PORT, DEFAULT_PORT, MulticastPool, PathChoice};
use crate::shared::error::StartError;

/// The settings of a node that is about to start.
#[derive(Debug)]
#[must_use = "a builder does nothing until it is started"]
pub struct Builder {
    interface: Option<String>,
    port: Option<u16>,
    multicast_port: u16,
    pool: MulticastPool,
    seeds: Vec<String>,
    static_members: Option<Vec<(NodeId, SocketAddr)>>,
    registries: Vec<String>,
    cluster: String,
    rack: String,
    node_id: Option<NodeId>,
    path: PathChoice,
    loss: Loss,
    seed: Option<u64>,
    lateral: lateral::Config,
    ordered: rmp::Config,
    bulk: rdcm::Config,
    mtu: Option<u16>,
    guest: Option<GuestFactory>,
    queue_events: usize,
    driver: Option<Driver>,
}

struct GuestFactory(Box<dyn FnOnce(Origin, u64) -> Box<dyn Engine> + Send>);

impl fmt::Debug for GuestFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GuestFactory")
    }
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            interface: None,
            port: None,
            multicast_port: DEFAULT_MULTICAST_PORT,
            pool: MulticastPool::default(),
            seeds: Vec::new(),
            static_members: None,
            registries: Vec::new(),
            cluster: String::new(),
            rack: String::new(),
            node_id: None,
            path: PathChoice::default(),
            loss: Loss::None,
            seed: None,
            lateral: lateral::Config::default(),
            ordered: rmp::Config::default(),
            bulk: rdcm::Config::default(),
            mtu: None,
            guest: None,
            queue_events: DEFAULT_QUEUE_EVENTS,
            driver: None,
        }
    }
}

impl Node {
    /// Returns the default settings of a new node.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl Builder {
    /// Sets the network interface, by name or IPv4 address.
    ///
    /// Default: the first interface that is up, supports multicast and is not loopback; if there is
    /// none, loopback. [`Status`](crate::Status) reports the interface and the reason for the
    /// choice.
    pub fn interface(mut self, name_or_ip: impl Into<String>) -> Self {
        self.interface = Some(name_or_ip.into());
        self
    }

    /// Sets the UDP port for unicast. 0 selects any free port.
    ///
    /// Default: 7400, or a free port if 7400 is in use. Set a fixed port if other nodes use this
    /// one as a seed.
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// Sets the UDP port for multicast, 1 to 65535. All nodes on a host share it.
    ///
    /// Default: 7401. The port also identifies the network: nodes with different multicast ports
    /// ignore each other, even if one is a seed of the other.
    pub fn multicast_port(mut self, port: u16) -> Self {
        self.multicast_port = port;
        self
    }

    /// Sets the pool of multicast addresses for groups. It must be the same on all nodes.
    ///
    /// Default: `239.77.0.1+1024`.
    pub fn pool(mut self, pool: MulticastPool) -> Self {
        self.pool = pool;
        self
    }

    /// Adds seeds, which are nodes for the first contact, each as `HOST:PORT` or `HOST`.
    ///
    /// Default: none. The node then contacts port 7400 of this host, unless the multicast port was
    /// changed, and finds other nodes by multicast. If seeds are given and no other node is found,
    /// joining a group fails.
    pub fn seeds<S: AsRef<str>>(mut self, seeds: impl IntoIterator<Item = S>) -> Self {
        self.seeds.extend(seeds.into_iter().map(|seed| seed.as_ref().to_owned()));
        self
    }

    /// Sets a static membership: exactly these nodes are in every group, online or not.
    ///
    /// The list may contain the node itself. Default: nodes find each other.
    pub fn static_members(mut self, members: Vec<(NodeId, SocketAddr)>) -> Self {
        self.static_members = Some(members);
        self
    }

    /// Adds addresses of registries (`carom registry` processes), each as `HOST:PORT` or `HOST`.
    ///
    /// Default: none. One address is enough. With a registry, the node finds others only through
    /// the registries, unless it has [static members](Builder::static_members). While the
    /// registries are unreachable, the node keeps the members that it knows, and joining a group
    /// fails.
    pub fn registry<S: AsRef<str>>(mut self, addresses: impl IntoIterator<Item = S>) -> Self {
        self.registries.extend(addresses.into_iter().map(|address| address.as_ref().to_owned()));
        self
    }

    /// Sets the name of the cluster that the registry must belong to, at most 255 bytes long.
    /// Default: empty.
    pub fn cluster(mut self, name: impl Into<String>) -> Self {
        self.cluster = name.into();
        self
    }

    /// Sets the rack of this host, for the registry; at most 255 bytes long. Default: empty.
    pub fn rack(mut self, name: impl Into<String>) -> Self {
        self.rack = name.into();
        self
    }

    /// Sets the node's id. Default: random.
    ///
    /// A process that restarts at the same address may reuse its id.
    pub fn node_id(mut self, id: NodeId) -> Self {
        self.node_id = Some(id);
        self
    }

    /// Sets how members are reached. Default: [`PathChoice::Auto`].
    pub fn path(mut self, path: PathChoice) -> Self {
        self.path = path;
        self
    }

    /// Sets the injected loss of received datagrams, for tests and experiments. Default: none.
    pub fn loss(mut self, loss: Loss) -> Self {
        self.loss = loss;
        self
    }

    /// Sets the seed of all random choices except the node's id and incarnation. Default: random.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Sets the maximum size, in bytes, of the IP packets that this node sends, for all engines.
    ///
    /// Default: the `path_mtu` of each engine's settings, which is 1500. Raise it for jumbo frames.
    /// The MTU of the interface and the discovered path MTUs always limit the size. Packets of more
    /// than 1500 bytes are sent only to nodes that have answered a probe of that size.
    pub fn mtu(mut self, bytes: u16) -> Self {
        self.mtu = Some(bytes);
        self
    }

    /// Replaces the settings of the lateral engine.
    pub fn lateral(mut self, config: lateral::Config) -> Self {
        self.lateral = config;
        self
    }

    /// Replaces the settings of the engine for ordered groups.
    pub fn ordered(mut self, config: rmp::Config) -> Self {
        self.ordered = config;
        self
    }

    /// Replaces the settings of the engine for bulk groups.
    pub fn bulk(mut self, config: rdcm::Config) -> Self {
        self.bulk = config;
        self
    }

    /// Adds a custom engine, for example to compare another protocol with those of Carom.
    ///
    /// The engine carries the groups that are joined with
    /// [`Profile::guest`](crate::Profile::guest). `make` is called once, with the node's id and
    /// incarnation, and a seed for all random choices.
    ///
    /// The engine must follow the [contract](carom_proto::engine). Its datagrams begin with the
    /// common [header](carom_proto::wire), carry
    /// [`Protocol::Guest`](carom_proto::wire::Protocol::Guest), and must not exceed the path MTU.
    /// [`Group::confirm`](crate::Group::confirm) times out if the engine never answers
    /// [`Engine::confirm`].
    pub fn guest(
        mut self,
        make: impl FnOnce(Origin, u64) -> Box<dyn Engine> + Send + 'static,
    ) -> Self {
        self.guest = Some(GuestFactory(Box::new(make)));
        self
    }

    /// Sets the capacity of each group's event queue, in events. Default: 65536; 0 counts as 1.
    ///
    /// A queue also holds at most 64 MiB of messages. When the queue of a time-critical or custom
    /// group is full, further messages are reported as [`Event::Lost`](crate::Event::Lost). A bulk
    /// group stops the sender. An ordered group slows the ring down, and the node leaves the group
    /// if it falls behind by another queue's size ([`Removal::TooSlow`](crate::Removal::TooSlow)).
    pub fn queue(mut self, events: usize) -> Self {
        self.queue_events = events;
        self
    }

    /// Runs the node on the thread of `driver`. Default: each node has its own thread.
    pub fn driver(mut self, driver: &Driver) -> Self {
        self.driver = Some(driver.share());
        self
    }

    fn check(&self) -> Result<(), StartError> {
        // With port 0, each node would get a different free port and receive nothing from the
        // others.
        if self.multicast_port == 0 {
            return Err(StartError::MulticastPort);
        }
        if !self.pool.is_valid() {
            return Err(StartError::Pool { pool: self.pool });
        }
        if !self.loss.is_valid() {
            return Err(StartError::Loss { loss: self.loss });
        }
        for name in [&self.cluster, &self.rack] {
            if name.len() > MAX_TEXT_BYTES {
                let name = name.chars().take(20).collect();
                return Err(StartError::LongName { name });
            }
        }
        Ok(())
    }

    fn check_engines(&mut self, path_mtu: impl Fn(u16) -> u16) -> Result<(), StartError> {
        let each =
            [&mut self.lateral.path_mtu, &mut self.ordered.path_mtu, &mut self.bulk.path_mtu];
        for mtu in each {
            *mtu = path_mtu(self.mtu.unwrap_or(*mtu));
        }
        self.lateral.validate()?;
        self.ordered.validate()?;
        self.bulk.validate()?;
        Ok(())
    }

    /// Returns the explicit seeds. If no seeds were given, returns the default port of this host,
    /// unless this node uses that port or the multicast port selects another network.
    fn all_seeds(&self, explicit: Vec<SocketAddr>, own: SocketAddr) -> Vec<SocketAddr> {
        let implied = SocketAddr::new(own.ip(), DEFAULT_PORT);
        let is_default = self.seeds.is_empty() && self.multicast_port == DEFAULT_MULTICAST_PORT;
        match is_default && implied != own {
            true => vec![implied],
            false => explicit,
        }
    }
}

const DEFAULT_QUEUE_EVENTS: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> SocketAddr {
        SocketAddr::new(std::net::Ipv4Addr::LOCALHOST.into(), port)
    }

    #[test]
    fn nodes_of_one_host_find_each_other_unless_told_otherwise() {
        let plain = Builder::default();
        assert_eq!(plain.all_seeds(Vec::new(), address(9)), [address(7400)]);
        assert_eq!(plain.all_seeds(Vec::new(), address(7400)), []);
        let seeded = Builder::default().seeds(["127.0.0.1:5"]);
        assert_eq!(seeded.all_seeds(vec![address(5)], address(9)), [address(5)]);
        let elsewhere = Builder::default().multicast_port(8000);
        assert_eq!(elsewhere.all_seeds(Vec::new(), address(9)), []);
    }

    #[test]
    fn what_makes_no_sense_is_refused_before_anything_is_opened() {
        let burst = Loss::Burst { rate: 0.1, length: 0 };
        assert!(matches!(Builder::default().loss(burst).start(), Err(StartError::Loss { .. })));
        let pool = MulticastPool { count: 0, ..MulticastPool::default() };
        assert!(matches!(Builder::default().pool(pool).start(), Err(StartError::Pool { .. })));
        let error =
            Builder::default().multicast_port(0).start().expect_err("port 0 cannot be shared");
        assert!(matches!(error, StartError::MulticastPort), "{error:?}");
        assert_eq!(error.to_string(), "multicast port 0 is invalid: expected 1 to 65535");
    }
}

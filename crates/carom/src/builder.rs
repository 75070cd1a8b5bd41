//! The settings of a node, and its start.

#[cfg(feature = "sim")]
mod simulated;

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::SocketAddr;
use std::sync::Arc;

use carom_proto::loss::Loss;
use carom_proto::membership::service::frame::MAX_TEXT_BYTES;
use carom_proto::{Endpoint, Engine, Incarnation, NodeId, Origin, Rng, lateral, rdcm, rmp};

use crate::address_book::AddressBook;
use crate::address_watch::AddressWatch;
use crate::driver::Driver;
use crate::error::StartError;
use crate::home::Home;
use crate::host::{Founding, Host};
use crate::interfaces::{ASKED_FOR, Choice, Interface};
use crate::joiner::Joiner;
use crate::links::Links;
use crate::membership::Provider;
use crate::node::{Node, NodeParts, NodeShared, Notices};
use crate::paths::{COMMON_MTU, Paths};
use crate::pool::MulticastPool;
use crate::receive::Receiver;
use crate::routes::{PathChoice, Routes};
use crate::seeds;
use crate::send::Sender;
use crate::sizes::Sizes;
use crate::sockets::{DEFAULT_MULTICAST_PORT, DEFAULT_PORT, Places, Sockets, buffer_notices};
use crate::status::{Notice, Status};
use crate::udp::{UdpNetwork, Watch};

/// Settings of a node that is about to start.
#[derive(Debug)]
#[must_use = "a builder does nothing until it is started"]
pub struct Builder {
    interface: Option<String>,
    port: Option<u16>,
    multicast_port: u16,
    pool: MulticastPool,
    seeds: Vec<String>,
    static_members: Option<Vec<(NodeId, SocketAddr)>>,
    controls: Vec<String>,
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
    guest: Option<MakeGuest>,
    queue_events: usize,
    driver: Option<Driver>,
}

/// Makes the engine of a node from its origin and a seed.
struct MakeGuest(Box<dyn FnOnce(Origin, u64) -> Box<dyn Engine> + Send>);

impl fmt::Debug for MakeGuest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MakeGuest")
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
            controls: Vec::new(),
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

impl Builder {
    /// The network interface, by name or IPv4 address. Default: the first that is up, carries
    /// multicast and is not loopback; loopback if there is none. [`Status`] tells which and why.
    pub fn interface(mut self, name_or_ip: impl Into<String>) -> Self {
        self.interface = Some(name_or_ip.into());
        self
    }

    /// The UDP port for unicast; 0 for any free one. Default: 7400, or any free one if that is
    /// taken.
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// The UDP port for multicast, which all nodes of the host share: 1 to 65535. Default: 7401. It
    /// also names the network: nodes with different ones ignore each other, also where one is a
    /// seed of the other, or is started at an address that a member of the other network had
    /// before.
    pub fn multicast_port(mut self, port: u16) -> Self {
        self.multicast_port = port;
        self
    }

    /// The multicast addresses that groups are spread over; the same for all nodes.
    pub fn pool(mut self, pool: MulticastPool) -> Self {
        self.pool = pool;
        self
    }

    /// Nodes to find the others through, each as `HOST:PORT` or `HOST`. Default: none; the others
    /// of this host are found at port 7400, and those of the local network by multicast. If seeds
    /// are given and none answers, joining a group is an error.
    pub fn seeds<S: AsRef<str>>(mut self, seeds: impl IntoIterator<Item = S>) -> Self {
        self.seeds.extend(seeds.into_iter().map(|seed| seed.as_ref().to_owned()));
        self
    }

    /// Static membership: exactly these nodes are in every group, whether they are there or not.
    /// The node itself may be among them. Default: nodes find each other.
    pub fn static_members(mut self, members: Vec<(NodeId, SocketAddr)>) -> Self {
        self.static_members = Some(members);
        self
    }

    /// Membership by a service: the addresses of `carom control` processes, each as `HOST:PORT` or
    /// `HOST`. Any one is enough, it names the others. The node then finds others by it alone, goes
    /// on with those it knows while the service is away, and joining a group is an error if it does
    /// not answer. Default: none.
    pub fn control<S: AsRef<str>>(mut self, addresses: impl IntoIterator<Item = S>) -> Self {
        self.controls.extend(addresses.into_iter().map(|address| address.as_ref().to_owned()));
        self
    }

    /// The name of the cluster that the membership service must be that of. Default: empty.
    pub fn cluster(mut self, name: impl Into<String>) -> Self {
        self.cluster = name.into();
        self
    }

    /// Where the node stands, for the failure detectors of the membership service. Default: empty.
    pub fn rack(mut self, name: impl Into<String>) -> Self {
        self.rack = name.into();
        self
    }

    /// The node's id. Default: random. A later process may use it again, at the same address: the
    /// others take it for a new start of the node by the incarnation in its datagrams.
    pub fn node_id(mut self, id: NodeId) -> Self {
        self.node_id = Some(id);
        self
    }

    /// How members are reached. Default: by multicast where they confirm that they hear it.
    pub fn path(mut self, path: PathChoice) -> Self {
        self.path = path;
        self
    }

    /// Datagrams to lose on receipt, for trying things out. Default: none.
    pub fn loss(mut self, loss: Loss) -> Self {
        self.loss = loss;
        self
    }

    /// The seed of all random choices but the node's id. Default: from the operating system.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Bytes of the largest IP packet that this node sends, for all engines alike: fewer than an
    /// interface carries, or more than 1500 where the network has jumbo frames. Default: the
    /// `path_mtu` of each engine's settings, which is 1500. What the interface carries and the
    /// paths to the other nodes were found to carry is the limit in any case; more than 1500 is
    /// sent to nobody before a probe of that size was answered.
    pub fn mtu(mut self, bytes: u16) -> Self {
        self.mtu = Some(bytes);
        self
    }

    /// The settings of the lateral engine. An interface with a smaller MTU lowers its `path_mtu`.
    pub fn lateral(mut self, config: lateral::Config) -> Self {
        self.lateral = config;
        self
    }

    /// The settings of the engine of ordered groups. An interface with a smaller MTU lowers its
    /// `path_mtu`.
    pub fn ordered(mut self, config: rmp::Config) -> Self {
        self.ordered = config;
        self
    }

    /// The settings of the engine of bulk groups. An interface with a smaller MTU lowers its
    /// `path_mtu`.
    pub fn bulk(mut self, config: rdcm::Config) -> Self {
        self.bulk = config;
        self
    }

    /// An engine of the caller's own, for whoever wants to run a protocol on this runtime and
    /// compare it with ours. It carries the groups that are joined with
    /// [`Profile::guest`](crate::Profile::guest), side by side with the others. `make` is called
    /// once, with the node's id and incarnation, and a seed for all random choices.
    ///
    /// The engine keeps the [contract](carom_proto::engine). Its datagrams begin with the common
    /// [header](carom_proto::wire) and say [`Protocol::Guest`](carom_proto::wire::Protocol::Guest);
    /// they must fit the path MTU. All nodes of such a group must have the same engine. A group
    /// whose engine never answers [`Engine::confirm`] has no use for
    /// [`Group::confirm`](crate::Group::confirm): it times out.
    pub fn guest(
        mut self,
        make: impl FnOnce(Origin, u64) -> Box<dyn Engine> + Send + 'static,
    ) -> Self {
        self.guest = Some(MakeGuest(Box::new(make)));
        self
    }

    /// Events that wait for the application in each group at most; what finds no room is told as
    /// lost. Default: 65536; at least 1. Messages of more than 64 MiB in all do not wait either.
    pub fn queue(mut self, events: usize) -> Self {
        self.queue_events = events;
        self
    }

    /// Has the node driven by the thread of `driver`, which may drive several. Default: a thread
    /// of its own.
    pub fn on(mut self, driver: &Driver) -> Self {
        self.driver = Some(driver.share());
        self
    }

    /// Starts the node.
    ///
    /// # Errors
    /// The settings make no sense or do not fit the host, or the system refuses something. Nothing
    /// is left running then.
    pub fn start(mut self) -> Result<Node, StartError> {
        self.check()?;
        let choice = Choice::new(self.interface.as_deref(), Interface::list()?)?;
        // The sockets refuse what would have to be fragmented.
        let carried = choice.interface.mtu().unwrap_or(COMMON_MTU);
        let each =
            [&mut self.lateral.path_mtu, &mut self.ordered.path_mtu, &mut self.bulk.path_mtu];
        for mtu in each {
            *mtu = self.mtu.unwrap_or(*mtu).min(carried);
        }
        self.lateral.validate()?;
        self.ordered.validate()?;
        self.bulk.validate()?;
        let has_multicast = self.path != PathChoice::Unicast;
        let sockets = Sockets::open(Places {
            interface: choice.interface.address,
            port: self.port,
            multicast_port: has_multicast.then_some(self.multicast_port),
        })?;
        let explicit_seeds = seeds::resolve(&self.seeds, sockets.endpoint)?;
        let controls = seeds::resolve_controls(&self.controls)?;
        let driver = match &self.driver {
            Some(driver) => driver.share(),
            None => Driver::new().map_err(|error| StartError::system("start a thread", error))?,
        };
        let (host, parts) = self.host(&choice, sockets, explicit_seeds, controls);
        match driver.attach(host) {
            Some(Ok(key)) => Ok(Node::new(NodeShared::new(Home::Thread { driver, key }, parts))),
            Some(Err(error)) => Err(StartError::system("watch the sockets", error)),
            None => Err(StartError::DriverStopped),
        }
    }

    fn check(&self) -> Result<(), StartError> {
        // Each node would have another free port, and hear none of the others.
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

    /// The node for the driver, and what its handles know.
    fn host(
        mut self,
        choice: &Choice,
        sockets: Sockets,
        explicit_seeds: Vec<SocketAddr>,
        controls: Vec<SocketAddr>,
    ) -> (Host<UdpNetwork>, NodeParts) {
        let id = self.node_id.unwrap_or_else(|| NodeId(system_random()));
        let origin = Origin { node: id, incarnation: Incarnation(system_random()) };
        self.bulk.network.meet(id, Endpoint(sockets.endpoint));
        let mut rng = Rng::new(self.seed.unwrap_or_else(system_random));
        let engines = [self.lateral.path_mtu, self.ordered.path_mtu, self.bulk.path_mtu];
        let wanted = engines.into_iter().fold(0, u16::max);
        let multicast_port = sockets.multicast.as_ref().and_then(|it| it.port().ok());
        let has_explicit_seeds = !explicit_seeds.is_empty();
        let membership = Provider {
            origin,
            endpoint: sockets.endpoint,
            network: self.multicast_port.into(),
            seeds: self.all_seeds(explicit_seeds, sockets.endpoint),
            static_members: self.static_members,
            controls,
            cluster: self.cluster,
            rack: self.rack,
            has_lan: multicast_port.is_some(),
            seed: rng.next_u64(),
        };
        let first_status = first_status(id, choice, &sockets);
        let notices = Arc::new(first_notices(choice, &sockets));
        let (membership, node_seed) = (membership.start(), rng.next_u64());
        let mut network = UdpNetwork {
            sockets,
            receiver: Receiver::new(id, self.loss, rng.next_u64()),
            sender: Sender::new(choice.interface.address),
            routes: Routes::new(self.path, self.pool, multicast_port),
            paths: Paths::new(
                origin,
                multicast_port.is_some(),
                Sizes::ceiling(wanted, choice.interface.address),
                rng.next_u64(),
            ),
            book: AddressBook::new(rng.next_u64()),
            joiner: Joiner::new(choice.interface.address),
            notices: Arc::clone(&notices),
            interface: choice.interface.name.clone(),
            watch: Watch::default(),
            address: AddressWatch::new(&choice.interface.name, choice.interface.address),
            moved_to: None,
            links: Links::default(),
            sizes: Sizes::new(origin, wanted),
        };
        if multicast_port.is_some() {
            network.listen(self.pool.hello);
        }
        let founding = Founding {
            lateral: self.lateral,
            ordered: self.ordered,
            bulk: self.bulk,
            guest: self.guest.map(|MakeGuest(make)| make(origin, rng.next_u64())),
            membership,
            origin,
            seed: node_seed,
            seeds: if has_explicit_seeds { self.seeds } else { Vec::new() },
            controls: self.controls,
            notices,
            first_status,
            queue_events: self.queue_events,
        };
        Host::new(founding, network)
    }

    /// The explicit seeds; or where there are none the default port of this host, so that the
    /// nodes of a host find each other without multicast. Another multicast port means another
    /// network, whose nodes do not look there.
    fn all_seeds(&self, explicit: Vec<SocketAddr>, own: SocketAddr) -> Vec<SocketAddr> {
        let implied = SocketAddr::new(own.ip(), DEFAULT_PORT);
        let is_default = self.seeds.is_empty() && self.multicast_port == DEFAULT_MULTICAST_PORT;
        match is_default && implied != own {
            true => vec![implied],
            false => explicit,
        }
    }
}

fn first_status(id: NodeId, choice: &Choice, sockets: &Sockets) -> Status {
    Status {
        interface: choice.interface.name.clone(),
        interface_reason: choice.reason.clone(),
        ..Status::first(id, sockets.endpoint, sockets.buffers)
    }
}

fn first_notices(choice: &Choice, sockets: &Sockets) -> Notices {
    let notices = Notices::default();
    let Interface { name, address, .. } = &choice.interface;
    if choice.reason != ASKED_FOR {
        let text = format!("interface {name} ({address}): {}", choice.reason);
        // On loopback alone nobody else is reached: that must be seen.
        let is_routine = !choice.interface.is_loopback;
        notices.add(Notice { is_routine, ..Notice::plain(text) });
    }
    buffer_notices(&sockets.buffers).into_iter().for_each(|notice| notices.add(notice));
    notices
}

/// 64 bits from the operating system, by way of the standard library's hasher keys.
fn system_random() -> u64 {
    RandomState::new().build_hasher().finish()
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
        let error = Builder::default().multicast_port(0).start().expect_err("nobody shares it");
        assert!(matches!(error, StartError::MulticastPort), "{error:?}");
        assert_eq!(error.to_string(), "multicast port 0 is invalid: expected 1 to 65535");
    }

    #[test]
    fn random_numbers_of_the_system_differ() {
        assert_ne!(system_random(), system_random());
    }
}

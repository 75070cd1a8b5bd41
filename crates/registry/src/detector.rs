//! Failure detector of a rack: a UDP socket for pings and connections to all registry processes.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use carom_proto::membership::service::detector;
use carom_proto::{Endpoint, NodeId};
use serde::{Deserialize, Serialize};

use crate::driver::{self, Driver};
use crate::error::RegistryError;
use crate::registry::system_random;

/// A running failure detector of a rack. Dropping it sends a goodbye and ends the detector.
///
/// ```no_run
/// use carom_registry::{Detector, DetectorOptions};
///
/// let service = "10.0.0.5:7402".parse().expect("an address");
/// let detector = Detector::start(DetectorOptions::new("rack-7", [service]))?;
/// println!("watches {:?}", detector.status().watched);
/// # Ok::<(), carom_registry::RegistryError>(())
/// ```
#[derive(Debug)]
pub struct Detector {
    driver: Driver<detector::Detector>,
    id: NodeId,
    rack: String,
    address: SocketAddr,
}

/// Settings of a failure detector.
#[derive(Clone, Debug)]
pub struct DetectorOptions {
    /// Name of the rack to watch, as given to its nodes. At most 255 bytes.
    pub rack: String,
    /// Addresses of registry processes. One is enough: it announces all partition owners.
    pub registries: Vec<SocketAddr>,
    /// Cluster name of the registry. At most 255 bytes. Default: empty.
    pub cluster: String,
    /// UDP address for pings. Default: 0.0.0.0 and any free port.
    pub listen: SocketAddr,
    /// Address at which other detectors ping this one. Set it if the registry runs on the same
    /// machine. Default: `listen`, or, if `listen` is the unspecified address, the source address
    /// of the connections to the registry processes.
    pub advertise: Option<SocketAddr>,
    /// Time without answers after which a node is reported. A value below 100 ms is raised to it.
    /// Default: `None`, the detection time of the registry.
    pub detection_time: Option<Duration>,
    /// Seed of the id and of random pauses. Default: `None`, a seed from the operating system.
    pub seed: Option<u64>,
}

/// Snapshot of a failure detector's state.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct DetectorStatus {
    /// Id by which registry processes and other detectors know this detector.
    pub detector: String,
    /// Rack that the detector watches.
    pub rack: String,
    /// Advertised UDP address, or the bound one if none is configured.
    pub address: String,
    /// Registry processes that the detector knows.
    pub processes: Vec<ProcessStatus>,
    /// Nodes and detectors that this detector pings.
    pub watched: Vec<String>,
    /// Reason for the last refusal by a registry process, or `None` if a process has accepted the
    /// detector since then.
    pub refused: Option<String>,
    /// Counters of the detector, by name.
    pub counters: BTreeMap<String, u64>,
}

/// A registry process, as a detector sees it.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct ProcessStatus {
    /// TCP address of the process.
    pub address: String,
    /// `true` if the detector is connected to the process, which has accepted it.
    pub linked: bool,
}

impl DetectorOptions {
    /// Returns the default settings for a rack and the given registry processes.
    pub fn new(rack: impl Into<String>, registries: impl IntoIterator<Item = SocketAddr>) -> Self {
        Self {
            rack: rack.into(),
            registries: registries.into_iter().collect(),
            cluster: String::new(),
            listen: SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0),
            advertise: None,
            detection_time: None,
            seed: None,
        }
    }
}

impl Detector {
    /// Starts a failure detector.
    ///
    /// If no registry process answers, the detector keeps trying, and its status shows no linked
    /// process.
    ///
    /// # Errors
    /// Returns an error if the UDP address cannot be bound, or if the system cannot create a thread
    /// or its runtime.
    ///
    /// # Panics
    /// Panics if `registries` is empty.
    pub fn start(options: DetectorOptions) -> Result<Self, RegistryError> {
        let socket = driver::bind(options.listen)?;
        let listened = socket.local_addr().map_err(RegistryError::Start)?;
        let address = options.advertise.unwrap_or(listened);
        let seed = options.seed.unwrap_or_else(system_random);
        let id = NodeId(seed);
        let config = detector::DetectorConfig {
            addresses: options.registries.into_iter().map(Endpoint).collect(),
            cluster: options.cluster,
            rack: options.rack.clone(),
            detection_time: options.detection_time,
            ..detector::DetectorConfig::default()
        };
        let machine = detector::Detector::new(id, Endpoint(address), config, seed);
        let driver = Driver::start("carom-detector", machine, Some(socket))?;
        Ok(Self { driver, id, rack: options.rack, address })
    }

    /// Returns a snapshot of the detector's state.
    pub fn status(&self) -> DetectorStatus {
        let machine = self.driver.machine();
        DetectorStatus {
            detector: self.id.to_string(),
            rack: self.rack.clone(),
            address: self.address.to_string(),
            processes: machine.processes().map(ProcessStatus::of).collect(),
            watched: machine.watched().map(|node| node.to_string()).collect(),
            refused: machine.last_refusal().map(ToString::to_string),
            counters: machine.stats().into_iter().map(|(name, it)| (name.to_owned(), it)).collect(),
        }
    }

    /// Returns `true` if the detector's thread has ended unexpectedly.
    pub fn has_ended(&self) -> bool {
        self.driver.has_ended()
    }

    /// Sends a goodbye, so that another detector takes over the rack at once, and ends the
    /// detector.
    ///
    /// # Errors
    /// Returns an error if the detector's thread has panicked.
    pub fn stop(mut self) -> Result<(), RegistryError> {
        self.driver.stop()
    }
}

impl ProcessStatus {
    pub(crate) fn of((address, linked): (Endpoint, bool)) -> Self {
        Self { address: address.to_string(), linked }
    }
}

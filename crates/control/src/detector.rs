//! The failure detector of a rack as a process: a UDP socket for pings, links to all control
//! processes.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use carom_proto::membership::link::{LinkCommand, LinkEvent, LinkId};
use carom_proto::membership::service::detector;
use carom_proto::{Endpoint, NodeId, Time, Transmit, Wakeup};
use serde::{Deserialize, Serialize};

use crate::caller::{self, Caller, Machine};
use crate::control::system_random;
use crate::error::ControlError;

/// A running failure detector. It says goodbye and ends when this is dropped.
///
/// ```no_run
/// use carom_control::{Detector, DetectorOptions};
///
/// let service = "10.0.0.5:7402".parse().expect("an address");
/// let detector = Detector::start(DetectorOptions::new("rack-7", [service]))?;
/// println!("watches {:?}", detector.status().watched);
/// # Ok::<(), carom_control::ControlError>(())
/// ```
#[derive(Debug)]
pub struct Detector {
    caller: Caller<detector::Detector>,
    id: NodeId,
    rack: String,
    address: SocketAddr,
}

/// What a failure detector is started with.
#[derive(Clone, Debug)]
pub struct DetectorOptions {
    /// The rack whose nodes are watched, as the nodes say it. At most 255 bytes.
    pub rack: String,
    /// Addresses of control processes; each names the others. At least one.
    pub controls: Vec<SocketAddr>,
    /// The cluster's name, as the service has it. At most 255 bytes. Default: empty.
    pub cluster: String,
    /// Where pings are sent from and answered, by UDP. Default: any address of the host and any
    /// free port.
    pub listen: SocketAddr,
    /// Where other detectors ping this one, if it is not where it listens. Default: where any
    /// address is listened at, the one from which it calls the control processes.
    pub advertise: Option<SocketAddr>,
    /// A node that answers no ping for so long is reported; from 100 ms on. Default: `None`, the
    /// service's detection time.
    pub detection_time: Option<Duration>,
    /// The seed of its id and of random pauses. Default: from the operating system.
    pub seed: Option<u64>,
}

/// A failure detector as it is.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct DetectorStatus {
    /// Its id, which control processes and other detectors know it by.
    pub detector: String,
    /// The rack that it says it is of.
    pub rack: String,
    /// Where it is pinged, and pings from.
    pub address: String,
    /// The control processes that it knows.
    pub processes: Vec<ProcessStatus>,
    /// The nodes and detectors that it pings.
    pub watched: Vec<String>,
    /// Why a control process refused it last, if none has let it in since.
    pub refused: Option<String>,
    /// All counters, by name.
    pub counters: BTreeMap<String, u64>,
}

/// A control process as somebody knows it who calls it.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct ProcessStatus {
    /// Its TCP address.
    pub address: String,
    /// Whether there is a link to it now.
    pub linked: bool,
}

impl DetectorOptions {
    /// The defaults, for this rack and these control processes.
    pub fn new(rack: impl Into<String>, controls: impl IntoIterator<Item = SocketAddr>) -> Self {
        Self {
            rack: rack.into(),
            controls: controls.into_iter().collect(),
            cluster: String::new(),
            listen: SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0),
            advertise: None,
            detection_time: None,
            seed: None,
        }
    }
}

impl Detector {
    /// Starts it. That no control process is reached, or that it is refused, is no error: it goes
    /// on trying, and its status tells.
    ///
    /// # Errors
    /// The UDP address cannot be listened at, or the system gives no thread.
    ///
    /// # Panics
    /// If there is no address of a control process.
    pub fn start(options: DetectorOptions) -> Result<Self, ControlError> {
        let socket = caller::bind(options.listen)?;
        let listened = socket.local_addr().map_err(ControlError::Start)?;
        let address = options.advertise.unwrap_or(listened);
        let seed = options.seed.unwrap_or_else(system_random);
        let id = NodeId(seed);
        let config = detector::DetectorConfig {
            addresses: options.controls.into_iter().map(Endpoint).collect(),
            cluster: options.cluster,
            rack: options.rack.clone(),
            detection_time: options.detection_time,
            ..detector::DetectorConfig::default()
        };
        let machine = detector::Detector::new(id, Endpoint(address), config, seed);
        let caller = Caller::start("carom-detector", machine, Some(socket))?;
        Ok(Self { caller, id, rack: options.rack, address })
    }

    /// How it is.
    pub fn status(&self) -> DetectorStatus {
        let machine = self.caller.machine();
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

    /// Whether it has ended by itself.
    pub fn has_ended(&self) -> bool {
        self.caller.has_ended()
    }

    /// Says goodbye, so that its rack is another detector's at once, and ends it.
    ///
    /// # Errors
    /// It had ended by a panic.
    pub fn stop(mut self) -> Result<(), ControlError> {
        self.caller.stop()
    }
}

impl ProcessStatus {
    pub(crate) fn of((address, linked): (Endpoint, bool)) -> Self {
        Self { address: address.to_string(), linked }
    }
}

impl Machine for detector::Detector {
    fn handle_link(&mut self, now: Time, link: LinkId, event: LinkEvent<'_>) {
        self.handle_link(now, link, event);
    }

    fn handle_datagram(&mut self, now: Time, source: Endpoint, datagram: &[u8]) {
        self.handle_datagram(now, source, datagram);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.handle_timeout(now);
    }

    fn poll_link(&mut self) -> Option<LinkCommand> {
        self.poll_link()
    }

    fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Transmit> {
        self.poll_transmit(out)
    }

    fn poll_timeout(&self) -> Option<Wakeup> {
        self.poll_timeout()
    }

    fn shut_down(&mut self) {
        self.shut_down();
    }
}

//! The protocols, with their settings for a data center, behind one type.

use std::time::Duration;

use carom_baselines::StreamConfig;
use carom_baselines::block::BLOCK_HEADER_BYTES;
use carom_baselines::domain::{DomainConfig, Hierarchy, Plan};
use carom_baselines::guest::DATA_BYTES;
use carom_baselines::lbrm::{self, Lbrm};
use carom_baselines::rmtp::{self, Rmtp};
use carom_baselines::srm::{self, Distance, Srm};
use carom_baselines::tmtp::{self, Tmtp};
use carom_proto::rdcm::packet::DATA_BYTES as RDCM_DATA_BYTES;
use carom_proto::rdcm::topology::Vertex;
use carom_proto::rdcm::tree::MulticastTree;
use carom_proto::rdcm::{self, Congestion, Network, Rdcm};
use carom_proto::{Engine, GroupId, NodeId, Profile};
use serde::Deserialize;

use super::plane::{FRAMING_BYTES, GROUP, Plane, Setting, node_of};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Protocol {
    Srm,
    Lbrm,
    Tmtp,
    Rmtp,
    Rdcm,
}

pub(crate) enum Ridden {
    Guest(Box<dyn Engine>),
    Rdcm(Box<Rdcm>),
}

pub(crate) struct Maker<'a> {
    protocol: Protocol,
    plane: &'a Plane,
    hierarchy: Hierarchy,
}

/// Interval at which the sender announces the number of its packets, in protocols that do so.
const BEACONS: Duration = Duration::from_millis(1);
/// Assumed distance between members of SRM. A packet takes about this time over links with several
/// hundred kilobytes queued, which is usual when repairs are sent to all members.
const SRM_DISTANCE: Duration = Duration::from_millis(3);
/// Delay of RDCM's acknowledgments. Full links have room for few, but windows need them soon.
const ACK_DELAY: Duration = Duration::from_micros(500);
/// Time after which RDCM repeats a repair, for round trips of less than half a millisecond.
const RESEND_AFTER: Duration = Duration::from_millis(2);
/// Group for the multicasts within the first domain.
const FIRST_SCOPE: GroupId = GroupId(1 << 16);

impl Protocol {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Srm => "SRM",
            Self::Lbrm => "LBRM",
            Self::Tmtp => "TMTP",
            Self::Rmtp => "RMTP",
            Self::Rdcm => "RDCM",
        }
    }

    pub(crate) fn profile(self) -> Profile {
        match self {
            Self::Srm | Self::Lbrm | Self::Tmtp | Self::Rmtp => Profile::Guest,
            Self::Rdcm => Profile::Bulk,
        }
    }

    pub(crate) fn datagram_bytes(self, payload_bytes: usize) -> usize {
        match self {
            Self::Srm | Self::Lbrm | Self::Tmtp | Self::Rmtp => {
                DATA_BYTES + BLOCK_HEADER_BYTES + payload_bytes
            }
            Self::Rdcm => RDCM_DATA_BYTES + payload_bytes,
        }
    }

    pub(crate) fn packet_time(self, setting: &Setting) -> Duration {
        let bytes = self.datagram_bytes(setting.payload_bytes) + FRAMING_BYTES;
        let nanos = 8 * bytes as u64 * 1_000_000_000 / setting.bits_per_second;
        Duration::from_nanos(nanos)
    }

    /// Returns `true` if the multicasts of all members use only the group's tree (RDCM, section 6).
    /// LBRM's loggers have routes of their own, and RDCM's repairs are not multicast.
    pub(super) fn keeps_to_the_tree(self) -> bool {
        match self {
            Self::Srm | Self::Tmtp | Self::Rmtp => true,
            Self::Lbrm | Self::Rdcm => false,
        }
    }

    /// Returns the domains of the group. LBRM has two tiers: about √n domains of √n receivers.
    fn hierarchy(self, plane: &Plane) -> Hierarchy {
        let (ports, receivers) = (plane.setting.ports as usize, plane.receivers().len());
        let (least, tiers) = match self {
            Self::Srm | Self::Rdcm => return Hierarchy::flat(),
            Self::Lbrm => (receivers.isqrt(), Some(2)),
            Self::Tmtp | Self::Rmtp => (ports / 2, None),
        };
        let plan = Plan { least, tiers, first_scope: FIRST_SCOPE };
        Hierarchy::from_tree(&plane.tree, plan, |vertex| node_of(vertex.0))
            .expect("each vertex has its own node")
    }
}

impl<'a> Maker<'a> {
    pub(crate) fn new(protocol: Protocol, plane: &'a Plane) -> Self {
        Self { protocol, plane, hierarchy: protocol.hierarchy(plane) }
    }

    pub(crate) fn scopes(&self, node: NodeId) -> Vec<GroupId> {
        self.hierarchy.scopes(node)
    }

    pub(crate) fn engine(&self, node: NodeId, seed: u64) -> Ridden {
        match self.protocol {
            Protocol::Srm => Ridden::Guest(Box::new(Srm::new(node, self.srm(node), seed))),
            Protocol::Lbrm => {
                let config = lbrm::Config::datacenter();
                let domains = self.domains(config.domains.clone());
                let config = lbrm::Config { domains, first_heartbeat: BEACONS, ..config };
                Ridden::Guest(Box::new(Lbrm::new(node, config, seed)))
            }
            Protocol::Tmtp => {
                let config = tmtp::Config::datacenter();
                let domains = self.domains(config.domains.clone());
                Ridden::Guest(Box::new(Tmtp::new(node, tmtp::Config { domains, ..config }, seed)))
            }
            Protocol::Rmtp => {
                let config = rmtp::Config::datacenter();
                let domains = self.domains(config.domains.clone());
                let config = rmtp::Config { domains, beacon_interval: BEACONS, ..config };
                Ridden::Guest(Box::new(Rmtp::new(node, config, seed)))
            }
            Protocol::Rdcm => Ridden::Rdcm(Box::new(Rdcm::new(node, self.rdcm(node), seed))),
        }
    }

    /// Returns the settings of domains. Heads do not fail here, so a receiver that waits for a
    /// repair always queries the same head.
    fn domains(&self, base: DomainConfig) -> DomainConfig {
        let detect_after = self.plane.setting.detect_after;
        let (hierarchy, streams) = (self.hierarchy.clone(), StreamConfig::from_first());
        DomainConfig { hierarchy, streams, detect_after, climb_after: u32::MAX, ..base }
    }

    /// Returns the settings of SRM.
    ///
    /// Distances are fixed, because measuring them with session messages among a thousand members
    /// would take longer than the transfer. The sender's session messages are as frequent as the
    /// beacons of the other protocols. Repair timers are spread over as many distances as there are
    /// members, so that few members repair the same packet. With ns-2's logarithm, hundreds of them
    /// do.
    fn srm(&self, node: NodeId) -> srm::Config {
        let is_sender = node == node_of(self.plane.sender());
        let session_interval = if is_sender { BEACONS } else { Duration::from_secs(1) };
        let members = self.plane.receivers().len() as f64;
        srm::Config {
            streams: StreamConfig::from_first(),
            timing: srm::Timing::Fixed { c1: 2.0, c2: 2.0, d1: 1.0, d2: members },
            detect_after: self.plane.setting.detect_after,
            distance: Distance::Fixed(SRM_DISTANCE),
            session_interval,
            session_share: None,
            ..srm::Config::datacenter()
        }
    }

    fn rdcm(&self, node: NodeId) -> rdcm::Config {
        let setting = &self.plane.setting;
        let is_sender = node == node_of(self.plane.sender());
        let network = if is_sender { self.network() } else { Network::Unknown };
        let base = rdcm::Config::default();
        rdcm::Config {
            congestion: if setting.controls_congestion {
                base.congestion
            } else {
                Congestion::Room
            },
            ack_delay: ACK_DELAY,
            repairs_share_path: false,
            detect_after: setting.detect_after,
            resend_after: RESEND_AFTER + setting.detect_after,
            announce_every: BEACONS,
            gone_after: setting.gone_after.unwrap_or(base.gone_after),
            network,
            ..base
        }
    }

    fn network(&self) -> Network {
        let hosts = (0..self.plane.cluster.hosts()).map(|host| (node_of(host), Vertex(host)));
        let topology = Box::new(self.plane.cluster.clone());
        Network::Known { topology, hosts: hosts.collect() }
    }
}

impl Ridden {
    pub(crate) fn tree(&self) -> Option<&MulticastTree> {
        match self {
            Self::Rdcm(engine) => engine.tree(GROUP),
            Self::Guest(_) => None,
        }
    }

    /// Returns the numbers of packets that arrived through the tree and as repairs, if they
    /// are counted.
    pub(crate) fn arrived(&self) -> Option<(u64, u64)> {
        match self {
            Self::Rdcm(engine) => engine.arrived(GROUP),
            Self::Guest(_) => None,
        }
    }

    pub(crate) fn engine(&self) -> &dyn Engine {
        match self {
            Self::Guest(engine) => &**engine,
            Self::Rdcm(engine) => &**engine,
        }
    }

    pub(crate) fn engine_mut(&mut self) -> &mut dyn Engine {
        match self {
            Self::Guest(engine) => &mut **engine,
            Self::Rdcm(engine) => &mut **engine,
        }
    }
}

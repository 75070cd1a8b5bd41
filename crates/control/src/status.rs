//! What an operator sees of a control process.

use std::collections::BTreeMap;
use std::time::Duration;

use carom_proto::membership::service::GroupState;
use carom_proto::membership::service::server::Server;
use carom_proto::rdcm::manager_service::ManagerService;
use carom_proto::rdcm::topology::{LinkId, Vertex};
use carom_proto::{Endpoint, GroupId, NodeId, Time};
use serde::{Deserialize, Serialize};

/// A control process as it is.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Status {
    /// Drawn at random when it started.
    pub process: String,
    /// The cluster that it serves.
    pub cluster: String,
    /// Where nodes connect to.
    pub address: String,
    /// For how long it has run, in seconds.
    pub up_s: u64,
    /// A node that is silent for so long is taken for dead, in milliseconds.
    pub lease_ms: u64,
    /// Links of nodes and detectors.
    pub links: usize,
    /// Requests that wait for the store.
    pub open_requests: usize,
    /// What keeps the state.
    pub store: StoreStatus,
    /// The partitions that it knows, those that it owns among them.
    pub partitions: Vec<PartitionStatus>,
    /// The nodes that it holds leases of.
    pub nodes: Vec<NodeStatus>,
    /// The failure detectors that it thinks alive.
    pub detectors: Vec<KnownDetector>,
    /// The multicast manager of bulk groups; `None` if the network is not known here.
    pub multicast: Option<MulticastStatus>,
    /// All counters, by name.
    pub counters: BTreeMap<String, u64>,
}

/// The multicast manager of a control process. That of the owner of partition 0 is asked.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct MulticastStatus {
    /// Hosts of the network.
    pub hosts: u32,
    /// Links of the network, but for those to places for nodes that it does not name.
    pub links: usize,
    /// The links that are believed dead, by what they join.
    pub dead_links: Vec<String>,
    /// The groups in which somebody sends who asks it.
    pub groups: Vec<MulticastGroup>,
}

/// A group of the multicast manager.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct MulticastGroup {
    /// Its id.
    pub group: String,
    /// The sender's id.
    pub sender: String,
    /// How many receivers have a place.
    pub receivers: usize,
    /// The links of its tree, by what they join.
    pub links: Vec<String>,
}

/// A failure detector that is thought alive.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct KnownDetector {
    /// Its id.
    pub detector: String,
    /// Its rack.
    pub rack: String,
    /// Where it is pinged.
    pub endpoint: String,
    /// Whether it has a link to this process now; without one it watches nobody for it.
    pub linked: bool,
    /// For how long nothing was heard from it, in milliseconds.
    pub silent_ms: u64,
    /// The nodes that it is to watch: those of its rack, and of racks without a detector.
    pub watches: Vec<String>,
    /// The next detector in the chain, which it pings as well; `None` if it is the only one.
    pub next: Option<String>,
}

/// The store of a control process.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct StoreStatus {
    /// `embedded` or `etcd`.
    pub kind: String,
    /// Whether the process may own partitions now: its lease at the store runs.
    pub registered: bool,
    /// What is wrong, if anything is.
    pub trouble: Option<String>,
    /// Where nodes connect to the control processes that are alive by the store's word; none for
    /// an embedded store, which has one process.
    pub processes: Vec<String>,
    /// Counters of the store alone, by name; those of the service follow them in
    /// [`Status::counters`].
    #[serde(skip)]
    pub(crate) counters: Vec<(&'static str, u64)>,
}

/// A partition that is known.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct PartitionStatus {
    /// Its number.
    pub partition: u16,
    /// Whether this process decides about it.
    pub owned: bool,
    /// Where nodes connect to the process that does; `None` while it is between two owners.
    pub owner: Option<String>,
    /// How many changes it has seen.
    pub version: u64,
    /// Its groups that have members.
    pub groups: usize,
    /// The members of these, a node counted in each of its groups.
    pub members: usize,
}

/// A node that is thought alive.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct NodeStatus {
    /// Its id.
    pub node: String,
    /// How often it came back after it had been taken for dead.
    pub incarnation: u32,
    /// Its UDP endpoint.
    pub endpoint: String,
    /// Its rack; empty if it did not say.
    pub rack: String,
    /// Whether it has a link to this process now.
    pub linked: bool,
    /// For how long nothing was heard from it, in milliseconds.
    pub silent_ms: u64,
    /// The failure detector that pings it; `None` if only its lease tells that it failed, or the
    /// node before it in the ring.
    pub watched_by: Option<String>,
    /// The node that it pings in the ring; `None` without a ring.
    pub next: Option<String>,
}

/// A group as the process knows it.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct GroupStatus {
    /// Its id.
    pub group: String,
    /// Its settings, as its first join said.
    pub profile: String,
    /// The partition's version after its last change.
    pub version: u64,
    /// Its members.
    pub members: Vec<MemberStatus>,
}

/// A member of a group.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct MemberStatus {
    /// Its id.
    pub node: String,
    /// Its incarnation.
    pub incarnation: u32,
    /// Its UDP endpoint.
    pub endpoint: String,
}

/// The process is away from its store, or has just begun to read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unknown;

/// What a status tells beside what the server knows.
#[derive(Clone, Debug)]
pub(crate) struct Surroundings<'a> {
    pub(crate) cluster: &'a str,
    pub(crate) store: StoreStatus,
    pub(crate) address: String,
    pub(crate) partitions: u16,
    pub(crate) lease: Duration,
    pub(crate) links: usize,
    pub(crate) now: Time,
}

impl StoreStatus {
    /// An embedded store is there as long as its process is.
    pub(crate) fn embedded() -> Self {
        let (processes, counters) = (Vec::new(), Vec::new());
        Self { kind: "embedded".into(), registered: true, trouble: None, processes, counters }
    }
}

impl Status {
    /// The partitions that it owns.
    pub fn owned(&self) -> impl Iterator<Item = &PartitionStatus> {
        self.partitions.iter().filter(|partition| partition.owned)
    }

    pub(crate) fn of(server: &Server, around: &Surroundings<'_>) -> Self {
        let silent_ms = |heard: Time| around.now.since(heard).as_millis() as u64;
        let detectors = server.detectors().map(|detector| KnownDetector {
            detector: detector.session.member.node.to_string(),
            rack: detector.session.rack,
            endpoint: detector.session.member.endpoint.to_string(),
            linked: detector.session.is_linked,
            silent_ms: silent_ms(detector.session.heard),
            watches: detector.watched.iter().map(ToString::to_string).collect(),
            next: detector.next.map(|next| next.to_string()),
        });
        let watchers: BTreeMap<NodeId, NodeId> = server
            .detectors()
            .flat_map(|it| it.watched.into_iter().map(move |node| (node, it.session.member.node)))
            .collect();
        let nodes = server.sessions().map(|session| NodeStatus {
            node: session.member.node.to_string(),
            incarnation: session.member.incarnation,
            endpoint: session.member.endpoint.to_string(),
            rack: session.rack,
            linked: session.is_linked,
            silent_ms: silent_ms(session.heard),
            watched_by: watchers.get(&session.member.node).map(ToString::to_string),
            next: server.next_of(session.member.node).map(|next| next.to_string()),
        });
        let owners: BTreeMap<u16, Endpoint> = server.owners().owned.iter().copied().collect();
        let partitions = (0..around.partitions).filter_map(|partition| {
            let state = server.state(partition)?;
            Some(PartitionStatus {
                partition,
                owned: server.is_owned(partition),
                owner: owners.get(&partition).map(ToString::to_string),
                version: state.version(),
                groups: state.groups().len(),
                members: state.groups().values().map(|group| group.members.len()).sum(),
            })
        });
        let stats = around.store.counters.iter().copied().chain(server.stats());
        Self {
            process: format!("{:016x}", server.process()),
            cluster: around.cluster.to_owned(),
            address: around.address.clone(),
            up_s: around.now.since(Time(0)).as_secs(),
            lease_ms: around.lease.as_millis() as u64,
            links: around.links,
            open_requests: server.open_requests(),
            store: around.store.clone(),
            partitions: partitions.collect(),
            nodes: nodes.collect(),
            detectors: detectors.collect(),
            multicast: server.manager().map(MulticastStatus::of),
            counters: stats.map(|(name, count)| (name.to_owned(), count)).collect(),
        }
    }
}

impl MulticastStatus {
    fn of(manager: &ManagerService) -> Self {
        let multicast = manager.seating().manager();
        let topology = multicast.topology();
        let is_visitors = |end: &Vertex| end.0 >= topology.visitors().start;
        let has_visitors = !topology.visitors().is_empty();
        let links = topology.links().iter();
        let links = links.filter(|ends| !has_visitors || !ends.iter().any(is_visitors)).count();
        let name = |link: LinkId| match topology.links().get(link.0 as usize) {
            Some([a, b]) => format!("{} - {}", topology.name(*a), topology.name(*b)),
            None => format!("link {}", link.0),
        };
        let groups = manager.groups().filter_map(|(group, sender)| {
            let tree = multicast.tree(group)?;
            Some(MulticastGroup {
                group: group.to_string(),
                sender: sender.to_string(),
                receivers: tree.receivers().len(),
                links: tree.links().map(name).collect(),
            })
        });
        Self {
            hosts: topology.hosts(),
            links,
            dead_links: multicast.dead_links().into_iter().map(name).collect(),
            groups: groups.collect(),
        }
    }
}

impl GroupStatus {
    /// The group, if it has members; `Err` if its partition is not known here now.
    pub(crate) fn of(server: &Server, group: GroupId) -> Result<Option<Self>, Unknown> {
        let partition = server.owners().partition_of(group);
        let state = server.state(partition).ok_or(Unknown)?;
        Ok(state.group(group).map(|state| Self::new(group, state)))
    }

    fn new(group: GroupId, state: &GroupState) -> Self {
        let members = state.members.values().map(|member| MemberStatus {
            node: member.node.to_string(),
            incarnation: member.incarnation,
            endpoint: member.endpoint.to_string(),
        });
        Self {
            group: group.to_string(),
            profile: state.settings.profile.to_string(),
            version: state.version,
            members: members.collect(),
        }
    }
}

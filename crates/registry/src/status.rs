use std::collections::BTreeMap;
use std::time::Duration;

use carom_proto::membership::service::GroupState;
use carom_proto::membership::service::server::Server;
use carom_proto::rdcm::manager::service::ManagerService;
use carom_proto::rdcm::topology::{LinkId, Vertex};
use carom_proto::{Endpoint, GroupId, NodeId, Time};
use serde::{Deserialize, Serialize};

/// Snapshot of the state of a registry process.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Status {
    /// Random id of the process, drawn at its start.
    pub process: String,
    /// Name of the cluster that the process serves.
    pub cluster: String,
    /// TCP address for nodes.
    pub address: String,
    /// Time since the start, in seconds.
    pub up_s: u64,
    /// Time after which a silent node is declared dead, in milliseconds.
    pub lease_ms: u64,
    /// Number of TCP connections, including those on which no hello has been received yet.
    pub links: usize,
    /// Number of requests that wait for the store.
    pub open_requests: usize,
    /// Status of the store.
    pub store: StoreStatus,
    /// Partitions that the process knows, including those that it owns.
    pub partitions: Vec<PartitionStatus>,
    /// Nodes whose leases the process holds.
    pub nodes: Vec<NodeStatus>,
    /// Failure detectors considered alive.
    pub detectors: Vec<KnownDetector>,
    /// Multicast manager of bulk groups, or `None` if no network description is given.
    pub multicast: Option<MulticastStatus>,
    /// Counters of the process and of its store, by name.
    pub counters: BTreeMap<String, u64>,
}

/// Multicast manager of a registry process. Senders use the one at the owner of partition 0.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct MulticastStatus {
    /// Number of hosts in the network, excluding default places of unlisted nodes.
    pub hosts: u32,
    /// Number of links in the network, excluding the links to default places of unlisted nodes.
    pub links: usize,
    /// Links considered dead, each as the names of its two ends. They include `down_links`.
    pub dead_links: Vec<String>,
    /// Links that were reported as down, each as the names of its two ends.
    #[serde(default)]
    pub down_links: Vec<String>,
    /// Trees that the configured command installs in the network, or `None` if there is none.
    #[serde(default)]
    pub installations: Option<Vec<TreeInstallation>>,
    /// Groups in which a sender uses this manager.
    pub groups: Vec<MulticastGroup>,
}

/// A group in which a sender uses the multicast manager.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct MulticastGroup {
    /// Id of the group.
    pub group: String,
    /// Id of the sender.
    pub sender: String,
    /// Number of receivers that have a place in the overlay.
    pub receivers: usize,
    /// Links of the multicast tree, each as the names of its two ends.
    pub links: Vec<String>,
}

/// Installation of a group's multicast tree in the network.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct TreeInstallation {
    /// Id of the group.
    pub group: String,
    /// Number of the newest tree.
    pub version: u64,
    /// Number of the installed tree, or `None` if none was installed.
    pub installed: Option<u64>,
    /// `true` while the command runs.
    pub running: bool,
    /// Number of commands that failed.
    pub failures: u64,
    /// Reason of the last failure, or `None` if the last command succeeded.
    pub error: Option<String>,
    /// `true` if a command has failed since the last one that succeeded. The network may have parts
    /// of several trees.
    pub dirty: bool,
}

/// A failure detector that is considered alive.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct KnownDetector {
    /// Id of the detector.
    pub detector: String,
    /// Rack that the detector watches.
    pub rack: String,
    /// UDP endpoint at which the detector is pinged.
    pub endpoint: String,
    /// `true` if the detector is connected. Otherwise, it watches no nodes for this process.
    pub linked: bool,
    /// Time since the detector was last heard, in milliseconds.
    pub silent_ms: u64,
    /// Nodes assigned to the detector: those of its rack, and those of racks without a detector
    /// between it and the next detector.
    pub watches: Vec<String>,
    /// Next detector in the chain, which this detector pings as well, or `None` if it pings none.
    pub next: Option<String>,
}

/// Store of a registry process.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct StoreStatus {
    /// Kind of store: `embedded` or `etcd`.
    pub kind: String,
    /// `true` if the process may own partitions: the store is embedded, or its lease is valid.
    pub registered: bool,
    /// Current problem of the store, if any.
    pub trouble: Option<String>,
    /// TCP addresses of all live processes in the store. Empty for an embedded store.
    pub processes: Vec<String>,
    /// Counters of the store, which [`Status::counters`] merges with the registry's.
    #[serde(skip)]
    pub(crate) counters: Vec<(&'static str, u64)>,
}

/// A partition that the process knows.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct PartitionStatus {
    /// Partition number.
    pub partition: u16,
    /// `true` if this process owns the partition.
    pub owned: bool,
    /// TCP address of the owner, or `None` while the partition has no owner.
    pub owner: Option<String>,
    /// Number of changes that have been applied to the partition.
    pub version: u64,
    /// Number of groups in the partition that have members.
    pub groups: usize,
    /// Number of members of these groups. A node counts once in each of its groups.
    pub members: usize,
}

/// A node that is considered alive.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct NodeStatus {
    /// Id of the node.
    pub node: String,
    /// Number of times that the node came back under its id.
    pub incarnation: u32,
    /// UDP endpoint of the node.
    pub endpoint: String,
    /// Rack of the node. Empty if the node has not named one to this process.
    pub rack: String,
    /// `true` if the node is connected to this process.
    pub linked: bool,
    /// Time since the node was last heard here, or else since the process started, in milliseconds.
    pub silent_ms: u64,
    /// Failure detector that pings the node. If `None`, the lease or the ring detects a failure.
    pub watched_by: Option<String>,
    /// Node that this node pings in the ring, or `None` if it was assigned none.
    pub next: Option<String>,
}

/// A group, as the process knows it.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct GroupStatus {
    /// Id of the group.
    pub group: String,
    /// Profile of the group, set by its first join.
    pub profile: String,
    /// Version of the partition after the last change to the group.
    pub version: u64,
    /// Members of the group.
    pub members: Vec<MemberStatus>,
}

/// A member of a group.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct MemberStatus {
    /// Id of the member.
    pub node: String,
    /// Incarnation of the member in the registry.
    pub incarnation: u32,
    /// UDP endpoint of the member.
    pub endpoint: String,
}

/// The partition is unknown: the process has not read it since it started or lost the partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unknown;

/// Parts of a status that the server does not know.
#[derive(Clone, Debug)]
pub(crate) struct StatusContext<'a> {
    pub(crate) cluster: &'a str,
    pub(crate) store: StoreStatus,
    pub(crate) address: String,
    pub(crate) partitions: u16,
    pub(crate) lease: Duration,
    pub(crate) links: usize,
    pub(crate) now: Time,
}

impl StoreStatus {
    pub(crate) fn embedded() -> Self {
        let (processes, counters) = (Vec::new(), Vec::new());
        Self { kind: "embedded".into(), registered: true, trouble: None, processes, counters }
    }
}

impl Status {
    /// Returns the partitions that the process owns.
    pub fn owned(&self) -> impl Iterator<Item = &PartitionStatus> {
        self.partitions.iter().filter(|partition| partition.owned)
    }

    pub(crate) fn of(server: &Server, context: &StatusContext<'_>) -> Self {
        let silent_ms = |heard: Time| context.now.since(heard).as_millis() as u64;
        let detectors = server.detectors().map(|detector| KnownDetector {
            detector: detector.session.member.node.to_string(),
            rack: detector.session.rack,
            endpoint: detector.session.member.endpoint.to_string(),
            linked: detector.session.is_linked,
            silent_ms: silent_ms(detector.session.heard),
            watches: detector.watched.iter().map(ToString::to_string).collect(),
            next: detector.session.next.map(|next| next.to_string()),
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
            next: session.next.map(|next| next.to_string()),
        });
        let owners: BTreeMap<u16, Endpoint> = server.owners().owned.iter().copied().collect();
        let partitions = (0..context.partitions).filter_map(|partition| {
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
        let stats = context.store.counters.iter().copied().chain(server.stats());
        Self {
            process: format!("{:016x}", server.process()),
            cluster: context.cluster.to_owned(),
            address: context.address.clone(),
            up_s: context.now.since(Time(0)).as_secs(),
            lease_ms: context.lease.as_millis() as u64,
            links: context.links,
            open_requests: server.open_requests(),
            store: context.store.clone(),
            partitions: partitions.collect(),
            nodes: nodes.collect(),
            detectors: detectors.collect(),
            multicast: server.manager().map(MulticastStatus::of),
            counters: stats.map(|(name, count)| (name.to_owned(), count)).collect(),
        }
    }
}

impl MulticastStatus {
    fn of(service: &ManagerService) -> Self {
        let multicast = service.trees();
        let topology = multicast.topology();
        let is_visitors = |end: &Vertex| end.0 >= topology.visitors().start;
        let has_visitors = !topology.visitors().is_empty();
        let links = topology.links().iter();
        let links = links.filter(|ends| !has_visitors || !ends.iter().any(is_visitors)).count();
        let name = |link: LinkId| match topology.links().get(link.0 as usize) {
            Some([a, b]) => format!("{} - {}", topology.name(*a), topology.name(*b)),
            None => format!("link {}", link.0),
        };
        let groups = service.groups().filter_map(|(group, sender)| {
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
            down_links: multicast.down_links().iter().copied().map(name).collect(),
            installations: service.installs_trees().then(|| {
                let all = service.installations();
                all.map(|it| TreeInstallation {
                    group: it.group.to_string(),
                    version: it.version,
                    installed: it.installed,
                    running: it.is_running,
                    failures: it.failures,
                    error: it.error.map(str::to_owned),
                    dirty: it.is_dirty,
                })
                .collect()
            }),
            groups: groups.collect(),
        }
    }
}

impl GroupStatus {
    /// Returns the status of a group, or `None` if it has no members. Fails while its partition is
    /// unknown here.
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

//! Observer of the members of groups, for a program that is in none of them.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use carom_proto::membership::service::frame::ChangeKind;
use carom_proto::membership::service::observer;
use carom_proto::{Endpoint, GroupId, NodeId};

use crate::driver::Driver;
use crate::error::RegistryError;
use crate::registry::system_random;

/// A running observer of the members of groups. Dropping it ends the observer.
///
/// ```no_run
/// use carom_registry::{Observer, ObserverOptions};
///
/// let registry = "10.0.0.5:7402".parse().expect("an address");
/// let observer = Observer::start(ObserverOptions::new([registry]))?;
/// for change in observer.take_changes() {
///     println!("{change:?}");
/// }
/// # Ok::<(), carom_registry::RegistryError>(())
/// ```
#[derive(Debug)]
pub struct Observer {
    driver: Driver<observer::Observer>,
}

/// Settings of an observer.
#[derive(Clone, Debug)]
pub struct ObserverOptions {
    /// Addresses of registry processes. One is enough: it announces all partition owners.
    pub registries: Vec<SocketAddr>,
    /// Cluster name of the registry. At most 255 bytes. Default: empty.
    pub cluster: String,
    /// Name of the group to observe. Default: `None`, which observes all groups.
    pub group: Option<String>,
}

/// Snapshot of an observer's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// `false` if a part of the registry is unreachable or has not answered yet, so that the data
    /// may be incomplete or outdated.
    pub is_current: bool,
    /// Reason for the last refusal by a registry process, or `None` if a process has accepted the
    /// observer since then.
    pub refused: Option<String>,
    /// Nodes that are in at least one observed group, in order of their ids.
    pub nodes: Vec<ObservedNode>,
}

/// A node that is in at least one observed group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedNode {
    /// Id of the node.
    pub node: NodeId,
    /// Incarnation of the node in the registry.
    pub incarnation: u32,
    /// UDP endpoint of the node.
    pub endpoint: SocketAddr,
    /// Groups of the node, in order of their ids.
    pub groups: Vec<GroupId>,
}

/// A change to the members of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObservedChange {
    /// Kind of change: joined, left or failed.
    pub kind: ChangeKind,
    /// Group whose members changed.
    pub group: GroupId,
    /// Node that joined, left or failed.
    pub node: NodeId,
    /// Incarnation of the node in the registry.
    pub incarnation: u32,
    /// UDP endpoint of the node, or its last endpoint if the node left or failed.
    pub endpoint: SocketAddr,
}

impl ObserverOptions {
    /// Returns the default settings for the given registry processes.
    pub fn new(registries: impl IntoIterator<Item = SocketAddr>) -> Self {
        let (cluster, group) = (String::new(), None);
        Self { registries: registries.into_iter().collect(), cluster, group }
    }
}

impl Observer {
    /// Starts an observer.
    ///
    /// The observer keeps trying if a registry process is unreachable or refuses it.
    ///
    /// # Errors
    /// Returns an error if the system cannot create a thread or its runtime.
    ///
    /// # Panics
    /// Panics if `registries` is empty.
    pub fn start(options: ObserverOptions) -> Result<Self, RegistryError> {
        let config = observer::ObserverConfig {
            addresses: options.registries.into_iter().map(Endpoint).collect(),
            cluster: options.cluster,
            group: options.group.as_deref().map(GroupId::of_name),
            ..observer::ObserverConfig::default()
        };
        let machine = observer::Observer::new(config, system_random());
        Ok(Self { driver: Driver::start("carom-observer", machine, None)? })
    }

    /// Returns a snapshot of the observer's state.
    pub fn observe(&self) -> Observation {
        let machine = self.driver.machine();
        let mut nodes: BTreeMap<NodeId, ObservedNode> = BTreeMap::new();
        for (group, observed) in machine.groups() {
            for member in observed.members.values() {
                let (incarnation, endpoint) = (member.incarnation, member.endpoint.0);
                let node = member.node;
                let fresh = ObservedNode { node, incarnation, endpoint, groups: Vec::new() };
                let known = nodes.entry(node).or_insert(fresh);
                // A returned node may still be listed in a group under its earlier incarnation.
                if known.incarnation < incarnation {
                    (known.incarnation, known.endpoint) = (incarnation, endpoint);
                }
                known.groups.push(*group);
            }
        }
        Observation {
            is_current: machine.is_current(),
            refused: machine.last_refusal().map(ToString::to_string),
            nodes: nodes.into_values().collect(),
        }
    }

    /// Returns the changes since the previous call, in the order of the registry's reports. Between
    /// two calls, changes after the first 65,536 are dropped.
    pub fn take_changes(&self) -> Vec<ObservedChange> {
        let mut machine = self.driver.machine();
        let changes = std::iter::from_fn(|| machine.poll_change());
        let changes = changes.map(|(group, change)| ObservedChange {
            kind: change.kind,
            group,
            node: change.member.node,
            incarnation: change.member.incarnation,
            endpoint: change.member.endpoint.0,
        });
        changes.collect()
    }

    /// Returns `true` if the observer's thread has ended unexpectedly.
    pub fn has_ended(&self) -> bool {
        self.driver.has_ended()
    }
}

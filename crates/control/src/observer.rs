//! Who is in which group, for a program that is in none.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use carom_proto::membership::link::{LinkCommand, LinkEvent, LinkId};
use carom_proto::membership::service::frame::ChangeKind;
use carom_proto::membership::service::observer;
use carom_proto::{Endpoint, GroupId, NodeId, Time, Wakeup};

use crate::caller::{Caller, Machine};
use crate::control::system_random;
use crate::error::ControlError;

/// A running observer of a membership service. It ends when this is dropped.
///
/// ```no_run
/// use carom_control::{Observer, ObserverOptions};
///
/// let service = "10.0.0.5:7402".parse().expect("an address");
/// let observer = Observer::start(ObserverOptions::new([service]))?;
/// for change in observer.take_changes() {
///     println!("{change:?}");
/// }
/// # Ok::<(), carom_control::ControlError>(())
/// ```
#[derive(Debug)]
pub struct Observer {
    caller: Caller<observer::Observer>,
}

/// What an observer is started with.
#[derive(Clone, Debug)]
pub struct ObserverOptions {
    /// Addresses of control processes; each names the others. At least one.
    pub controls: Vec<SocketAddr>,
    /// The cluster's name, as the service has it. At most 255 bytes. Default: empty.
    pub cluster: String,
    /// The name of the group that is observed. Default: `None`, all groups.
    pub group: Option<String>,
}

/// What an observer knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// Whether all of it is as the service says at this time. If not, the service, or a part of it,
    /// is not reached, and what it said last is shown.
    pub is_current: bool,
    /// Why a control process refused the observer last, if none has let it in since.
    pub refused: Option<String>,
    /// The nodes that are in any of the groups, in order of their ids.
    pub nodes: Vec<ObservedNode>,
}

/// A node that is in a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedNode {
    /// Its id.
    pub node: NodeId,
    /// Its incarnation.
    pub incarnation: u32,
    /// Its UDP endpoint.
    pub endpoint: SocketAddr,
    /// Its groups, in order of their ids.
    pub groups: Vec<GroupId>,
}

/// A node joined a group, left it, or failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObservedChange {
    /// What happened.
    pub kind: ChangeKind,
    /// In which group.
    pub group: GroupId,
    /// Which node.
    pub node: NodeId,
    /// Its incarnation.
    pub incarnation: u32,
    /// The UDP endpoint that it has or had.
    pub endpoint: SocketAddr,
}

impl ObserverOptions {
    /// The defaults, for these control processes.
    pub fn new(controls: impl IntoIterator<Item = SocketAddr>) -> Self {
        let (cluster, group) = (String::new(), None);
        Self { controls: controls.into_iter().collect(), cluster, group }
    }
}

impl Observer {
    /// Starts it. That no control process is reached, or that it is refused, is no error: it goes
    /// on trying.
    ///
    /// # Errors
    /// The system gives no thread.
    ///
    /// # Panics
    /// If there is no address of a control process.
    pub fn start(options: ObserverOptions) -> Result<Self, ControlError> {
        let config = observer::ObserverConfig {
            addresses: options.controls.into_iter().map(Endpoint).collect(),
            cluster: options.cluster,
            group: options.group.as_deref().map(GroupId::of_name),
            ..observer::ObserverConfig::default()
        };
        let machine = observer::Observer::new(config, system_random());
        Ok(Self { caller: Caller::start("carom-observer", machine, None)? })
    }

    /// What it knows.
    pub fn observe(&self) -> Observation {
        let machine = self.caller.machine();
        let mut nodes: BTreeMap<NodeId, ObservedNode> = BTreeMap::new();
        for (group, observed) in machine.groups() {
            for member in observed.members.values() {
                let (incarnation, endpoint) = (member.incarnation, member.endpoint.0);
                let node = member.node;
                let fresh = ObservedNode { node, incarnation, endpoint, groups: Vec::new() };
                let known = nodes.entry(node).or_insert(fresh);
                // A node that came back may still be in a group as it was before.
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

    /// What has changed since this was asked for the last time, in the order in which it was told.
    pub fn take_changes(&self) -> Vec<ObservedChange> {
        let mut machine = self.caller.machine();
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

    /// Whether it has ended by itself.
    pub fn has_ended(&self) -> bool {
        self.caller.has_ended()
    }
}

impl Machine for observer::Observer {
    fn handle_link(&mut self, now: Time, link: LinkId, event: LinkEvent<'_>) {
        self.handle_link(now, link, event);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.handle_timeout(now);
    }

    fn poll_link(&mut self) -> Option<LinkCommand> {
        self.poll_link()
    }

    fn poll_timeout(&self) -> Option<Wakeup> {
        self.poll_timeout()
    }

    fn shut_down(&mut self) {
        self.shut_down();
    }
}

//! Where a destination leads: which addresses get a datagram.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use carom_proto::node::Node;
use carom_proto::{Destination, GroupId, Hops, NodeId};

use crate::address_book::{AddressBook, is_usable};
use crate::paths::Paths;
use crate::pool::MulticastPool;
use crate::status::MemberPath;

/// How a node reaches the members of its groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathChoice {
    /// Multicast, with unicast copies for the members that have not confirmed that they hear it.
    #[default]
    Auto,
    /// Multicast only: nothing is ever copied.
    Multicast,
    /// Unicast copies only: the node neither sends nor receives multicast.
    Unicast,
}

/// The addresses that get a datagram.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) multicast: Option<SocketAddr>,
    pub(crate) unicast: Vec<SocketAddr>,
    /// Whether the unicast addresses stand in for multicast.
    pub(crate) is_copied: bool,
    /// Whether there is nobody who could get it.
    pub(crate) is_empty_group: bool,
}

/// The routes of one node. Those of groups are kept until something that they depend on changes.
#[derive(Debug)]
pub(crate) struct Routes {
    choice: PathChoice,
    pool: MulticastPool,
    multicast_port: Option<u16>,
    groups: HashMap<GroupId, Route>,
    single: Route,
}

/// What routes depend on.
pub(crate) struct Surroundings<'a> {
    pub(crate) node: &'a Node,
    pub(crate) paths: &'a Paths,
    pub(crate) book: &'a AddressBook,
}

impl Routes {
    /// `multicast_port`: `None` if the node has no multicast.
    pub(crate) fn new(
        choice: PathChoice,
        pool: MulticastPool,
        multicast_port: Option<u16>,
    ) -> Self {
        let (groups, single) = (HashMap::new(), Route::default());
        Self { choice, pool, multicast_port, groups, single }
    }

    /// A view, a path or an address has changed.
    pub(crate) fn forget(&mut self) {
        self.groups.clear();
    }

    /// The nodes that need copies of what is sent to a group.
    pub(crate) fn unreached(&self, paths: &Paths) -> BTreeSet<NodeId> {
        match self.choice {
            PathChoice::Multicast => BTreeSet::new(),
            PathChoice::Auto | PathChoice::Unicast => paths.unreached(),
        }
    }

    /// The multicast address of `group`.
    pub(crate) fn group_address(&self, group: GroupId) -> Option<SocketAddr> {
        self.multicast_address(self.pool.address(group))
    }

    /// The route to `destination`.
    pub(crate) fn of(&mut self, destination: Destination, around: &Surroundings<'_>) -> &Route {
        let single = match destination {
            Destination::Group(group) => {
                if !self.groups.contains_key(&group) {
                    let route = self.to_group(group, around);
                    self.groups.insert(group, route);
                }
                return &self.groups[&group];
            }
            Destination::Tree(group) => return self.along_tree(group, around),
            Destination::Node(node) => around.book.address(node),
            Destination::Endpoint(endpoint) => Some(endpoint.0).filter(|it| is_usable(*it)),
            Destination::Lan => {
                self.single.unicast.clear();
                self.single.is_copied = false;
                self.single.multicast = self.multicast_address(self.pool.hello);
                // Without multicast there is no local network to speak to.
                self.single.is_empty_group = true;
                return &self.single;
            }
        };
        self.single.multicast = None;
        self.single.is_copied = false;
        self.single.is_empty_group = false;
        self.single.unicast.clear();
        self.single.unicast.extend(single);
        &self.single
    }

    /// The route of a bulk group's data: to those whom multicast reaches, and to those who pass it
    /// on to the others.
    fn along_tree(&mut self, group: GroupId, around: &Surroundings<'_>) -> &Route {
        let Hops { by_multicast, relays } = around.node.hops(group);
        self.single.multicast = by_multicast.then(|| self.group_address(group)).flatten();
        self.single.unicast.clear();
        self.single.unicast.extend(relays.iter().filter_map(|node| around.book.address(*node)));
        self.single.is_copied = true;
        self.single.is_empty_group = relays.is_empty();
        &self.single
    }

    fn to_group(&self, group: GroupId, around: &Surroundings<'_>) -> Route {
        // A group that this node is not in but has asked something: anybody may be a member.
        let anybody: Vec<NodeId>;
        let members = match around.node.view(group) {
            Some(view) => view.members(),
            None if !around.node.ordered().calls(group) => &[],
            None => {
                let nodes = around.node.membership().nodes();
                anybody = nodes.into_iter().map(|(node, _)| node).collect();
                &anybody
            }
        };
        let path = |node: &&NodeId| around.paths.path(**node);
        let everybody_copied =
            !members.is_empty() && members.iter().all(|it| path(&it) == MemberPath::Unicast);
        let multicast = match self.choice {
            PathChoice::Auto if everybody_copied => None,
            _ => self.group_address(group),
        };
        let needs_copy = |node: &&NodeId| match self.choice {
            PathChoice::Multicast => false,
            PathChoice::Auto => path(node) != MemberPath::Multicast,
            PathChoice::Unicast => true,
        };
        let copied = members.iter().filter(needs_copy);
        let unicast = copied.filter_map(|node| around.book.address(*node)).collect();
        Route { multicast, unicast, is_copied: true, is_empty_group: members.is_empty() }
    }

    fn multicast_address(&self, address: Ipv4Addr) -> Option<SocketAddr> {
        let port = self.multicast_port?;
        Some(SocketAddr::new(IpAddr::V4(address), port))
    }
}

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use carom_proto::node::Node;
use carom_proto::{Destination, GroupId, Hops, NodeId};

use super::address_book::{AddressBook, is_usable};
use super::paths::Paths;
use crate::shared::addressing::{MulticastPool, PathChoice};
use crate::shared::status::MemberPath;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) multicast: Option<SocketAddr>,
    pub(crate) unicast: Vec<SocketAddr>,
    /// `true` if datagrams to the unicast addresses count as unicast copies.
    pub(crate) is_copied: bool,
    /// `true` if a route without addresses is expected, so that its datagrams do not count as
    /// unroutable.
    pub(crate) is_empty_group: bool,
}

/// The routes of one node. Routes of groups are kept until the state on which they depend changes.
#[derive(Debug)]
pub(crate) struct Routes {
    choice: PathChoice,
    pool: MulticastPool,
    multicast_port: Option<u16>,
    groups: HashMap<GroupId, Route>,
    single: Route,
}

pub(crate) struct RouteContext<'a> {
    pub(crate) node: &'a Node,
    pub(crate) paths: &'a Paths,
    pub(crate) book: &'a AddressBook,
}

impl Routes {
    /// Creates empty routes. `multicast_port` is `None` if the node has no multicast.
    pub(crate) fn new(
        choice: PathChoice,
        pool: MulticastPool,
        multicast_port: Option<u16>,
    ) -> Self {
        let (groups, single) = (HashMap::new(), Route::default());
        Self { choice, pool, multicast_port, groups, single }
    }

    /// Drops the routes of groups. Called after a view, a path or an address has changed.
    pub(crate) fn forget(&mut self) {
        self.groups.clear();
    }

    pub(crate) fn unreached(&self, paths: &Paths) -> BTreeSet<NodeId> {
        match self.choice {
            PathChoice::Multicast => BTreeSet::new(),
            PathChoice::Auto | PathChoice::Unicast => paths.unreached(),
        }
    }

    pub(crate) fn group_address(&self, group: GroupId) -> Option<SocketAddr> {
        self.multicast_address(self.pool.address(group))
    }

    pub(crate) fn of(&mut self, destination: &Destination, context: &RouteContext<'_>) -> &Route {
        let single = match destination {
            Destination::Group(group) => {
                if !self.groups.contains_key(group) {
                    let route = self.to_group(*group, context);
                    self.groups.insert(*group, route);
                }
                return &self.groups[group];
            }
            Destination::Tree(group, hops) => return self.along_tree(*group, hops, context),
            Destination::Node(node) => context.book.address(*node),
            Destination::Endpoint(endpoint) => Some(endpoint.0).filter(|it| is_usable(*it)),
            Destination::Lan => {
                self.single.unicast.clear();
                self.single.is_copied = false;
                self.single.multicast = self.multicast_address(self.pool.hello);
                // Without multicast, the local network cannot be reached as a whole.
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

    /// Returns the route of bulk data.
    fn along_tree(&mut self, group: GroupId, hops: &Hops, context: &RouteContext<'_>) -> &Route {
        let Hops { by_multicast, relays } = hops;
        self.single.multicast = by_multicast.then(|| self.group_address(group)).flatten();
        self.single.unicast.clear();
        self.single.unicast.extend(relays.iter().filter_map(|node| context.book.address(*node)));
        self.single.is_copied = true;
        self.single.is_empty_group = relays.is_empty();
        &self.single
    }

    fn to_group(&self, group: GroupId, context: &RouteContext<'_>) -> Route {
        // For a query to a group that this node has not joined, any node may be a member.
        let candidates: Vec<NodeId>;
        let members = match context.node.view(group) {
            Some(view) => view.members(),
            None if !context.node.calls(group) => &[],
            None => {
                let nodes = context.node.membership().nodes();
                candidates = nodes.into_iter().map(|(node, _)| node).collect();
                &candidates
            }
        };
        let path = |node: &&NodeId| context.paths.path(**node);
        let are_all_copied =
            !members.is_empty() && members.iter().all(|it| path(&it) == MemberPath::Unicast);
        let multicast = match self.choice {
            PathChoice::Auto if are_all_copied => None,
            _ => self.group_address(group),
        };
        let needs_copy = |node: &&NodeId| match self.choice {
            PathChoice::Multicast => false,
            PathChoice::Auto => path(node) != MemberPath::Multicast,
            PathChoice::Unicast => true,
        };
        let copied = members.iter().filter(needs_copy);
        let unicast = copied.filter_map(|node| context.book.address(*node)).collect();
        Route { multicast, unicast, is_copied: true, is_empty_group: members.is_empty() }
    }

    fn multicast_address(&self, address: Ipv4Addr) -> Option<SocketAddr> {
        let port = self.multicast_port?;
        Some(SocketAddr::new(IpAddr::V4(address), port))
    }
}

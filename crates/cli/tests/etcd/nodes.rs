//! Nodes of the library, and what their views have to be.

use std::collections::{BTreeMap, BTreeSet};

use carom::{Group, MulticastPool, Node, PathChoice, Profile};

use super::service::Control;
use super::wait_until;

/// A node with the groups that it was let into and has not left.
pub(crate) struct Host {
    node: Node,
    groups: BTreeMap<String, Group>,
}

impl Host {
    /// A node that knows these control processes.
    pub(crate) fn start(controls: &[&str]) -> Self {
        let builder = Node::builder().interface("127.0.0.1").port(0).path(PathChoice::Unicast);
        let builder = builder.pool(MulticastPool::default()).control(controls.iter().copied());
        Self { node: builder.start().expect("a node"), groups: BTreeMap::new() }
    }

    /// Asks until the service has let it in.
    pub(crate) fn join(&mut self, name: &str) {
        if self.groups.contains_key(name) {
            return;
        }
        wait_until(&format!("to be let into {name}"), || {
            match self.node.join(name, Profile::time_critical()) {
                Ok(group) => self.groups.insert(name.to_owned(), group).is_none(),
                // Only that nobody answered in time is to be expected.
                Err(carom::JoinGroupError::ServiceAway { .. }) => false,
                Err(error) => panic!("{name}: {error}"),
            }
        });
    }

    pub(crate) fn leave(&mut self, name: &str) {
        self.groups.remove(name).expect("it is a member").leave();
    }

    /// The names of its groups.
    pub(crate) fn groups(&self) -> impl Iterator<Item = &String> {
        self.groups.keys()
    }

    /// Leaves all and stops.
    pub(crate) fn close(self) {
        self.node.close();
    }

    fn id(&self) -> String {
        self.node.id().to_string()
    }

    fn view(&self, name: &str) -> BTreeSet<String> {
        let others = self.groups[name].members();
        others.iter().map(ToString::to_string).chain([self.id()]).collect()
    }
}

/// Who is in which group by what the nodes were told: what was acknowledged, and no more.
fn acknowledged(hosts: &[Host]) -> BTreeMap<String, BTreeSet<String>> {
    let mut groups: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for host in hosts {
        for name in host.groups() {
            groups.entry(name.clone()).or_default().insert(host.id());
        }
    }
    groups
}

/// Waits until every node's views are what was acknowledged to all.
pub(crate) fn await_views(hosts: &[Host]) {
    let expected = acknowledged(hosts);
    for host in hosts {
        for name in host.groups() {
            let seen = || host.view(name);
            wait_until(&format!("{:?} in {name}, last seen {:?}", expected[name], seen()), || {
                seen() == expected[name]
            });
        }
    }
}

/// Waits until the process knows of every group what was acknowledged, and of these groups that
/// nobody else is in them.
pub(crate) fn await_service(
    control: &Control,
    hosts: &[Host],
    names: impl Iterator<Item = String>,
) {
    let mut groups = acknowledged(hosts);
    names.for_each(|name| {
        groups.entry(name).or_default();
    });
    for (name, expected) in groups {
        let seen = || control.members(&name);
        wait_until(
            &format!("{expected:?} in {name} at {}, last seen {:?}", control.address, seen()),
            || seen() == expected,
        );
    }
}

use std::collections::{BTreeMap, BTreeSet};

use carom::blocking::{Group, Node};
use carom::{MulticastPool, PathChoice, Profile};

use super::service::Registry;
use super::wait_until;

pub(crate) struct Host {
    node: Node,
    groups: BTreeMap<String, Group>,
}

impl Host {
    pub(crate) fn start(registries: &[&str]) -> Self {
        Self { node: start_node(registries), groups: BTreeMap::new() }
    }

    pub(crate) fn join(&mut self, name: &str) {
        if self.groups.contains_key(name) {
            return;
        }
        wait_until(&format!("admission to {name}"), || {
            match self.node.join(name, Profile::time_critical()) {
                Ok(group) => self.groups.insert(name.to_owned(), group).is_none(),
                // The only expected error is a missing answer.
                Err(carom::JoinGroupError::ServiceAway { .. }) => false,
                Err(error) => panic!("{name}: {error}"),
            }
        });
    }

    pub(crate) fn leave(&mut self, name: &str) {
        self.groups.remove(name).expect("it is a member").leave();
    }

    pub(crate) fn groups(&self) -> impl Iterator<Item = &String> {
        self.groups.keys()
    }

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

pub(crate) fn start_node(registries: &[&str]) -> Node {
    let builder = Node::builder().interface("127.0.0.1").port(0).path(PathChoice::Unicast);
    let builder = builder.pool(MulticastPool::default()).registry(registries.iter().copied());
    builder.start().map(Node::from).expect("a node")
}

fn acknowledged(hosts: &[Host]) -> BTreeMap<String, BTreeSet<String>> {
    let mut groups: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for host in hosts {
        for name in host.groups() {
            groups.entry(name.clone()).or_default().insert(host.id());
        }
    }
    groups
}

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

pub(crate) fn await_service(
    registry: &Registry,
    hosts: &[Host],
    names: impl Iterator<Item = String>,
) {
    let mut groups = acknowledged(hosts);
    names.for_each(|name| {
        groups.entry(name).or_default();
    });
    for (name, expected) in groups {
        let seen = || registry.members(&name);
        wait_until(
            &format!("{expected:?} in {name} at {}, last seen {:?}", registry.address, seen()),
            || seen() == expected,
        );
    }
}

//! Roles of the child processes.

use std::io::BufRead as _;
use std::net::SocketAddr;
use std::sync::Arc;

use carom::blocking::{Group, Node};
use carom::{MulticastPool, PathChoice, Profile};
use carom_registry::{Options, Registry};

use super::PATIENCE;
use super::plan::{Plan, Provider, group_name, node_id};

pub(crate) fn registry(folder: &str) {
    let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
    let options = Options { listen: any_port, http: Some(any_port), ..Options::new(folder) };
    let registry = Registry::start(options).expect("a registry process");
    let http = registry.http().expect("it was asked for");
    println!("{} {http}", registry.address());
    registry.wait().expect("it is ended from outside");
}

/// Runs a node. It joins its groups on command from standard input, and prints its progress.
pub(crate) fn node(number: &str, address: &str, plan: &Plan) {
    let number: usize = number.parse().expect("the number of a node");
    let builder = Node::builder().interface("127.0.0.1").port(0).path(PathChoice::Unicast);
    let builder = builder.pool(MulticastPool::default()).node_id(node_id(number));
    let builder = match plan.provider {
        Provider::Service => builder.registry([address]),
        Provider::Gossip if number == 0 => builder,
        Provider::Gossip => builder.seeds([address]),
    };
    let node = Arc::new(Node::start(builder).expect("a node"));
    println!("{}", node.endpoint());
    assert!(node.settled(PATIENCE), "the others are not found");
    println!("settled");
    await_word("join");
    let groups = join(&node, plan.groups_of(number).into_iter().map(group_name));
    println!("joined");
    let members = plan.members();
    for (group, number_of_group) in groups.iter().zip(plan.groups_of(number)) {
        let others = members[number_of_group].iter().filter(|other| **other != number);
        let others: Vec<_> = others.map(|other| node_id(*other)).collect();
        group.wait_for_members(others.len()).expect("it is open");
        assert_eq!(group.members(), others);
    }
    println!("complete");
    await_word("end");
}

fn join(node: &Arc<Node>, names: impl Iterator<Item = String>) -> Vec<Group> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let joins: Vec<_> = names
        .map(|name| {
            let node = Arc::clone(node);
            runtime.spawn(async move {
                node.as_async().join(&name, Profile::time_critical()).await.expect("the group")
            })
        })
        .collect();
    runtime.block_on(async {
        let mut groups = Vec::new();
        for join in joins {
            groups.push(Group::from(join.await.expect("no panic")));
        }
        groups
    })
}

fn await_word(expected: &str) {
    let mut word = String::new();
    std::io::stdin().lock().read_line(&mut word).expect("lines in UTF-8");
    assert_eq!(word.trim_end(), expected);
}

//! Many nodes join many groups at once. The benchmark `--bench joins` measures this for 64 nodes.

use std::net::SocketAddr;
use std::sync::Arc;

use carom::blocking::Group;
use carom::{Driver, MulticastPool, Node, NodeId, PathChoice, Profile};
use carom_registry::{Options, Registry};

const NODES: u64 = 12;
const GROUPS: usize = 300;

fn join_all(nodes: &[Arc<Node>]) -> Vec<Group> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let joins: Vec<_> = nodes
        .iter()
        .flat_map(|node| (0..GROUPS).map(move |group| (Arc::clone(node), group)))
        .map(|(node, group)| {
            let name = format!("group {group}");
            runtime.spawn(async move { node.join(&name, Profile::time_critical()).await })
        })
        .collect();
    runtime.block_on(async {
        let mut groups = Vec::new();
        for join in joins {
            let group = join.await.expect("no panic").expect("the registry answers");
            groups.push(Group::from(group));
        }
        groups
    })
}

#[test]
fn twelve_nodes_joining_300_groups_at_once_are_in_all_views() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
    let options = Options { listen: any_port, http: None, ..Options::new(folder.path()) };
    let registry = Registry::start(options).expect("a registry process");
    let driver = Driver::new().expect("a thread");
    let nodes: Vec<Arc<Node>> = (1..=NODES)
        .map(|id| {
            let builder = Node::builder().interface("127.0.0.1").port(0).node_id(NodeId(id));
            let builder = builder.path(PathChoice::Unicast).pool(MulticastPool::default());
            let builder = builder.registry([registry.address().to_string()]).driver(&driver);
            Arc::new(builder.start().expect("a node"))
        })
        .collect();
    let groups = join_all(&nodes);
    assert_eq!(groups.len(), NODES as usize * GROUPS);
    for (place, group) in groups.iter().enumerate() {
        let own = nodes[place / GROUPS].id();
        let others: Vec<NodeId> = (1..=NODES).map(NodeId).filter(|id| *id != own).collect();
        group.wait_for_members(others.len()).expect("it is open");
        assert_eq!(group.members(), others, "{} of {own}", group.as_async().name());
    }
    drop(registry);
}

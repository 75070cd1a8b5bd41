//! Library nodes on real sockets with a registry process.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use carom::blocking::{Group, Node};
use carom::{Event, JoinGroupError, MulticastPool, NodeId, PathChoice, Profile};
use carom_registry::{Options, Registry};

const PATIENCE: Duration = Duration::from_secs(30);

fn registry(store: &Path, listen: SocketAddr) -> Registry {
    let mut options = Options::new(store);
    options.listen = listen;
    options.http = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
    options.server.detection_time = Duration::from_secs(2);
    Registry::start(options).expect("a registry process")
}

fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn node(registry: SocketAddr) -> Node {
    let builder = Node::builder().interface("127.0.0.1").port(0).path(PathChoice::Unicast);
    builder
        .pool(MulticastPool::default())
        .registry([registry.to_string()])
        .start()
        .map(Node::from)
        .expect("a node")
}

fn join(node: &Node, name: &str) -> Group {
    node.join(name, Profile::time_critical()).expect("the registry answers")
}

/// Waits until the other members of `group` are exactly `expected`.
fn wait_for_members(group: &Group, expected: &[&Node]) {
    let mut expected: Vec<NodeId> = expected.iter().map(|node| node.id()).collect();
    expected.sort_unstable();
    let give_up = Instant::now() + PATIENCE;
    while group.members() != expected {
        assert!(Instant::now() < give_up, "members are {:?}, not {expected:?}", group.members());
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn next_message(group: &Group) -> Vec<u8> {
    loop {
        match group.recv_timeout(PATIENCE).expect("an event in time").expect("an open group") {
            Event::Message(message) => return message.payload.to_vec(),
            _ => continue,
        }
    }
}

#[test]
fn members_meet_through_the_service_and_exchange_messages() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let registry = registry(folder.path(), any_port());
    let nodes = [(); 3].map(|()| node(registry.address()));
    let groups = nodes.each_ref().map(|node| join(node, "prices"));
    let [a, b, c] = &nodes;
    wait_for_members(&groups[0], &[b, c]);
    wait_for_members(&groups[1], &[a, c]);
    wait_for_members(&groups[2], &[a, b]);
    groups[0].publish("EURUSD 1.0841").expect("an open group");
    assert_eq!(next_message(&groups[1]), b"EURUSD 1.0841");
    assert_eq!(next_message(&groups[2]), b"EURUSD 1.0841");
    let [_, _, last] = groups;
    last.leave();
    drop(registry);
}

#[test]
fn nodes_continue_without_the_service_and_catch_up_later() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let first = registry(folder.path(), any_port());
    let address = first.address();
    let (a, b) = (node(address), node(address));
    let (in_a, in_b) = (join(&a, "prices"), join(&b, "prices"));
    wait_for_members(&in_a, &[&b]);
    wait_for_members(&in_b, &[&a]);
    first.stop().expect("it ends well");
    let stats = a.status().stats;
    assert!(
        stats.net.links_opened == 1 && stats.net.link_bytes_in > 0 && stats.net.link_bytes_out > 0
    );

    in_a.publish("without the registry").expect("an open group");
    assert_eq!(next_message(&in_b), b"without the registry");
    assert_eq!(in_a.members(), [b.id()], "the last view is kept");

    let second = registry(folder.path(), address);
    let c = node(address);
    let in_c = join(&c, "prices");
    wait_for_members(&in_c, &[&a, &b]);
    wait_for_members(&in_a, &[&b, &c]);
    wait_for_members(&in_b, &[&a, &c]);
    b.close();
    wait_for_members(&in_a, &[&c]);
    drop(second);
}

#[test]
fn a_group_keeps_the_settings_of_its_first_join_over_a_restart() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let first = registry(folder.path(), any_port());
    let address = first.address();
    let a = node(address);
    let _in_a = a.join("prices", Profile::time_critical().rate_of_fire(8, 5)).expect("the first");
    first.stop().expect("it ends well");
    let _second = registry(folder.path(), address);
    let b = node(address);
    let error = b.join("prices", Profile::time_critical().rate_of_fire(8, 3)).expect_err("other");
    let text = error.to_string();
    assert!(matches!(error, JoinGroupError::Refused(_)), "{error:?}");
    assert!(text.contains("(8,5)") && text.contains("(8,3)"), "{text}");
}

#[test]
fn absent_service_or_other_cluster_is_an_error_with_its_cause() {
    let unused = std::net::TcpListener::bind(any_port()).and_then(|it| it.local_addr());
    let nobody = node(unused.expect("a port that nobody listens at"));
    let error = nobody.join("prices", Profile::time_critical()).expect_err("nobody is there");
    assert!(matches!(error, JoinGroupError::ServiceAway { .. }), "{error:?}");

    let folder = tempfile::tempdir().expect("a folder for the test");
    let registry = registry(folder.path(), any_port());
    let builder = Node::builder().interface("127.0.0.1").port(0).cluster("elsewhere");
    let stranger =
        builder.registry([registry.address().to_string()]).start().map(Node::from).expect("a node");
    let error = stranger.join("prices", Profile::time_critical()).expect_err("another cluster");
    let text = error.to_string();
    assert!(text.contains("the registry belongs to cluster"), "{text}");
}

#[test]
fn status_members_and_metrics_are_served() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let registry = registry(folder.path(), any_port());
    let a = node(registry.address());
    let _in_a = join(&a, "prices");
    let http = registry.http().expect("it serves status");
    let get = |path: &str| {
        use std::io::{Read as _, Write as _};
        let mut stream = std::net::TcpStream::connect(http).expect("it listens");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            .expect("sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        text
    };
    let id = a.id().to_string();
    assert!(get("/status").contains(&id));
    assert!(get("/members?group=prices").contains(&id));
    assert!(get("/members?group=nobodys").starts_with("HTTP/1.1 404"));
    let metrics = get("/metrics");
    assert!(metrics.contains("carom_registry_nodes 1\n"), "{metrics}");
    assert!(metrics.trim_end().ends_with("# EOF"), "{metrics}");
}

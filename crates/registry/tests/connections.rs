//! Idle connections prevent neither nodes from joining nor operators from reading the status.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use carom::blocking::Node;
use carom::{MulticastPool, PathChoice, Profile};
use carom_registry::{Options, Registry};

const PATIENCE: Duration = Duration::from_secs(60);
/// More requests than can be open at once, regardless of the process's limit.
const HALF_REQUESTS: usize = 100;
const IDLE_LINKS: usize = 40;

fn start(adjust: impl FnOnce(&mut Options)) -> (Registry, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let mut options = Options::new(folder.path());
    options.listen = SocketAddr::from(([127, 0, 0, 1], 0));
    options.http = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
    adjust(&mut options);
    (Registry::start(options).expect("a registry process"), folder)
}

fn connect(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(to).expect("somebody listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout that is not zero");
    stream
}

fn read_to_end(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn assert_joins(registry: &Registry) {
    let builder = Node::builder().interface("127.0.0.1").port(0).path(PathChoice::Unicast);
    let builder = builder.pool(MulticastPool::default());
    let node =
        builder.registry([registry.address().to_string()]).start().map(Node::from).expect("a node");
    node.join("prices", Profile::time_critical()).expect("the registry answers");
}

#[test]
fn half_requests_are_closed_and_whole_ones_answered_after_them() {
    let (registry, _folder) = start(|_| {});
    let http = registry.http().expect("it was asked for");
    let mut half: Vec<TcpStream> = (0..HALF_REQUESTS).map(|_| connect(http)).collect();
    for stream in &mut half {
        stream.write_all(b"GET /metrics HTTP/1.1\r\nX: ").expect("it is taken up");
    }
    assert_joins(&registry);
    let mut whole = connect(http);
    whole.write_all(b"GET /status HTTP/1.1\r\nHost: a\r\n\r\n").expect("it is taken up");
    let answer = read_to_end(&mut whole);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    for stream in &mut half {
        let answer = read_to_end(stream);
        assert!(!answer.contains(" 200 "), "half a request is answered: {answer}");
    }
}

#[test]
fn idle_links_make_room_for_newer_ones_however_long_a_lease_is() {
    let (registry, _folder) = start(|options| {
        options.server.max_new_links = 8;
        options.server.detection_time = Duration::from_secs(600);
    });
    let mut idle: Vec<TcpStream> = (0..IDLE_LINKS).map(|_| connect(registry.address())).collect();
    assert_joins(&registry);
    for stream in &mut idle {
        assert_eq!(read_to_end(stream), "", "the registry closes it without a word");
    }
}

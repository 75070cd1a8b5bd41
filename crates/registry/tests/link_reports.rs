//! Reports on links, by the library and by HTTP.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use carom_proto::rdcm::topology::Topology;
use carom_proto::rdcm::{Hosts, Network};
use carom_registry::{LinkState, Options, Registry, RegistryError};

fn registry(store: &std::path::Path, network: Option<Network>) -> Registry {
    let mut options = Options::new(store);
    options.listen = SocketAddr::from(([127, 0, 0, 1], 0));
    options.http = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
    options.server.network = network;
    Registry::start(options).expect("a registry process")
}

fn racks() -> Option<Network> {
    let topology = Topology::racks(&[2, 2]).expect("racks");
    Some(Network::Known { topology: topology.into(), hosts: Hosts::default() })
}

fn request(registry: &Registry, head: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(registry.http().expect("it serves")).expect("it listens");
    let length = body.len();
    let text = format!("{head}\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}");
    stream.write_all(text.as_bytes()).expect("it reads");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("it answers");
    response
}

fn post(registry: &Registry, body: &str) -> String {
    request(registry, "POST /link HTTP/1.1\r\nContent-Type: application/json", body)
}

#[test]
fn reported_link_is_shown_as_down_until_it_is_up() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let registry = registry(folder.path(), racks());
    let answer = post(&registry, r#"{"between": ["core", "rack 1"], "state": "down"}"#);
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains(r#"{"links":1}"#), "{answer}");
    let status = request(&registry, "GET /status HTTP/1.1", "");
    let down = |name| format!(r#""{name}":["rack 1 - core"]"#);
    assert!(status.contains(&down("down_links")) && status.contains(&down("dead_links")));
    assert_eq!(registry.report_link("rack 1", "core", LinkState::Up).expect("a link"), 1);
    let status = request(&registry, "GET /status HTTP/1.1", "");
    assert!(status.contains(r#""down_links":[]"#), "{status}");
    let error = registry.report_link("rack 1", "rack 7", LinkState::Down).expect_err("no rack");
    assert!(error.to_string().contains("'rack 7'"), "{error}");
}

#[test]
fn report_that_is_invalid_or_not_json_is_refused() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let registry = registry(folder.path(), None);
    let down = r#"{"between": ["core", "rack 1"], "state": "down"}"#;
    assert!(post(&registry, down).contains("409"));
    assert!(post(&registry, r#"{"between": ["core"], "state": "down"}"#).contains("422"));
    // A browser sends other types across sites without a question.
    let plain = request(&registry, "POST /link HTTP/1.1\r\nContent-Type: text/plain", down);
    assert!(plain.contains("415"), "{plain}");
    let error = registry.report_link("core", "rack 1", LinkState::Down).expect_err("no manager");
    assert!(matches!(error, RegistryError::NoManager), "{error}");
}

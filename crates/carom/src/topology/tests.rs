use std::io::ErrorKind;

use carom_proto::rdcm::topology::Vertex;
use carom_proto::{Endpoint, NodeId};

use super::*;

fn known(text: &str) -> (Topology, Hosts) {
    match parse(text) {
        Ok(Network::Known { topology, hosts }) => (*topology, hosts),
        other => panic!("{other:?}"),
    }
}

fn at(text: &str, address: &str) -> Option<String> {
    let (topology, mut hosts) = known(text);
    hosts.node_up(NodeId(1), Endpoint(address.parse().expect("an address")));
    hosts.of(NodeId(1)).map(|vertex| topology.name(vertex).to_owned())
}

fn refused(text: &str) -> (usize, String, String) {
    let error = parse(text).expect_err("it is refused");
    let line = error.line.unwrap_or(0);
    let cause = error.to_string();
    let cause = cause.strip_prefix(&format!("line {line}: ")).unwrap_or(&cause).to_owned();
    (line, cause, error.fix())
}

const LEAVES: &str = r#"
switches = ["spine 1", "spine 2"]
links = [
    ["leaf a", "spine 1"], ["leaf a", "spine 2"],
    ["leaf b", "spine 1"], ["leaf b", "spine 2"],
    ["store", "spine 1"], ["store", "leaf b"],
]

[racks]
"leaf a" = ["10.0.1.1", "10.0.1.2:7400"]
"leaf b" = ["10.0.2.1"]

[hosts]
store = "00000000000000ff"
"#;

#[test]
fn topology_file_lists_switches_racks_hosts_links_and_nodes() {
    let (topology, hosts) = known(LEAVES);
    assert_eq!(topology.hosts(), 4);
    let store = hosts.of(NodeId(255)).expect("it is placed");
    assert_eq!(topology.name(store), "store");
    let near: Vec<&str> =
        topology.neighbours(store).iter().map(|(vertex, _)| topology.name(*vertex)).collect();
    assert_eq!(near, ["spine 1", "leaf b"]);
    assert_eq!(at(LEAVES, "10.0.1.1:9999").as_deref(), Some("10.0.1.1"));
    assert_eq!(at(LEAVES, "10.0.1.2:7400").as_deref(), Some("10.0.1.2:7400"));
    assert_eq!(at(LEAVES, "10.0.1.2:7401"), None, "another port means another node");
    assert!(!topology.visitors().is_empty(), "unnamed nodes have a place as well");
    assert!(!topology.forwards(store));
}

#[test]
fn racks_without_links_are_below_one_switch() {
    let racks = "[racks]\nleft = ['10.0.0.1', '10.0.0.2']\nright = ['localhost:7400']\nempty = []";
    let (topology, _) = known(racks);
    assert_eq!(topology.hosts(), 3);
    let names: Vec<&str> = (3..7).map(|it| topology.name(Vertex(it))).collect();
    assert_eq!(names, ["empty", "left", "right", "core"]);
    assert_eq!(at(racks, "127.0.0.1:7400").as_deref(), Some("localhost:7400"));
}

#[test]
fn links_of_a_file_have_the_speeds_that_it_states() {
    let text = LEAVES
        .replace("[\"leaf a\", \"spine 2\"]", "[\"leaf a\", \"spine 2\", \"40 Gbit/s\"]")
        .replace("switches =", "host-speed = '25 Gbit/s'\nswitch-speed = '100 Gbit/s'\nswitches =");
    let (topology, _) = known(&text);
    let speed = |a: &str, b: &str| {
        let links = topology.links_between(a, b).expect("both exist");
        topology.speed(links[0]).expect("a link").to_string()
    };
    assert_eq!(speed("10.0.1.1", "leaf a"), "25 Gbit/s");
    assert_eq!(speed("store", "spine 1"), "25 Gbit/s");
    assert_eq!(speed("leaf a", "spine 1"), "100 Gbit/s");
    assert_eq!(speed("leaf a", "spine 2"), "40 Gbit/s");
    let (line, cause, fix) = refused(&text.replace("40 Gbit/s", "40G"));
    let expected = "link speed '40G' is invalid: expected a number with a unit, such as 10 Gbit/s";
    assert_eq!((line, cause.as_str()), (6, expected));
    assert!(fix.contains("Gbit/s"), "{fix}");
    let (line, cause, _) = refused("links = [['a']]\n[hosts]\na = '10.0.0.1'\n");
    let expected = "the list of a link has 1 entries: expected two ends, and optionally a speed";
    assert_eq!((line, cause.as_str()), (1, expected));
}

#[test]
fn a_generated_network_is_named_and_its_hosts_are_given_nodes() {
    for (asked, host, hosts) in [
        ("[fat-tree]\nports = 4", "host 3.3", 16),
        ("[bcube]\nports = 4\nk = 1", "server 3.3", 16),
        ("[vl2]\naggregation-ports = 4\nintermediate-ports = 4\nrack-hosts = 3", "host 3.2", 12),
        ("[tree]\nfanouts = [2, 3]", "host 5", 6),
    ] {
        let text = format!("{asked}\n[hosts]\n'{host}' = '10.0.0.1'");
        let (topology, _) = known(&text);
        assert_eq!(topology.hosts(), hosts, "{asked}");
        assert_eq!(at(&text, "10.0.0.1:7400").as_deref(), Some(host));
    }
}

#[test]
fn malformed_file_is_refused_with_its_line() {
    let (line, cause, fix) = refused("[racks]\nleft = [10.0.0.1]\n");
    assert_eq!(
        (line, fix.as_str()),
        (2, "write the file in TOML, as shown in docs/bulk.md"),
        "{cause}"
    );
    let (line, cause, fix) = refused("\nracks = 3\n");
    assert_eq!(line, 2, "{cause} {fix}");
    let (line, cause, fix) = refused("swiches = []\n[racks]\na = ['10.0.0.1']\n");
    assert_eq!((line, cause.as_str()), (1, "unknown key 'swiches'"));
    assert!(fix.contains("fat-tree") && fix.contains("switches"), "{fix}");
    assert_eq!(refused("").1, "the file places no node in the network");
    assert_eq!(refused("[fat-tree]\nports = 4\n").1, "the file places no node in the network");
}

#[test]
fn unknown_names_and_links_to_nowhere_are_refused() {
    let wrong = LEAVES.replace("[\"store\", \"leaf b\"]", "[\"store\", \"leaf c\"]");
    let (line, cause, fix) = refused(&wrong);
    assert_eq!((line, cause.as_str()), (6, "unknown switch, rack or host 'leaf c'"));
    assert!(fix.starts_with("add it to switches"), "{fix}");
    let wrong = LEAVES.replace("[\"store\", \"leaf b\"]", "[\"store\", \"store\"]");
    assert_eq!(refused(&wrong).1, "'store' has a link to itself");
    let wrong = "[fat-tree]\nports = 4\n[hosts]\n'edge 0.0' = '10.0.0.1'";
    let (line, cause, fix) = refused(wrong);
    assert_eq!((line, cause.as_str()), (4, "'edge 0.0' is not a host of this network"));
    assert_eq!(fix, "use a host from 'host 0.0' to 'host 3.3'");
}

#[test]
fn a_name_or_a_node_in_two_places_is_refused_with_both_lines() {
    let twice = "switches = ['a']\n\n[racks]\na = ['10.0.0.1']\n";
    let (line, cause, _) = refused(twice);
    assert_eq!((line, cause.as_str()), (4, "name 'a' is used twice, first on line 1"));
    let twice = "[racks]\na = ['10.0.0.1',\n'10.0.0.1']\n";
    assert_eq!(refused(twice).1, "name '10.0.0.1' is used twice, first on line 2");
    let twice = "[racks]\na = ['127.0.0.1']\nb = ['localhost']\n";
    let (line, cause, fix) = refused(twice);
    assert_eq!((line, cause.as_str()), (3, "node 'localhost' is placed twice, first on line 2"));
    assert!(fix.contains("ADDRESS:PORT"), "{fix}");
    let (line, cause, _) = refused("[racks]\na = []\nb = ['10.0.0.1']\na = []\n");
    assert_eq!(line, 4, "{cause}");
}

#[test]
fn disconnected_network_is_refused_with_unreached_parts() {
    let parts = "switches = ['core']\nlinks = [['a', 'core']]\n[racks]\na = ['10.0.0.1']\n\
                 b = ['10.0.0.2']\n";
    let (line, cause, _) = refused(parts);
    assert_eq!((line, cause.as_str()), (5, "there is no path from '10.0.0.1' to '10.0.0.2'"));
    // Three hosts in a row: packets must pass the middle one.
    let row = |forward| {
        format!(
            "hosts-forward = {forward}\nswitches = ['s', 't']\nlinks = [['a', 's'], ['b', 's'], \
             ['b', 't'], ['c', 't']]\n[hosts]\na = '10.0.0.1'\nb = '10.0.0.2'\nc = '10.0.0.3'\n"
        )
    };
    let (line, cause, fix) = refused(&row(false));
    assert_eq!((line, cause.as_str()), (7, "there is no path from 'a' to 'c'"));
    assert!(fix.contains("hosts-forward"), "{fix}");
    assert!(parse(&row(true)).is_ok());
}

#[test]
fn too_many_links_and_impossible_topologies_are_refused() {
    let rack = |count: usize| {
        let nodes: Vec<String> = (0..count).map(|it| format!("'10.0.0.{it}'")).collect();
        format!("[racks]\nwide = [{}]\n", nodes.join(", "))
    };
    let (line, cause, fix) = refused(&rack(127));
    let expected = "'wide' has 128 links: expected at most 127";
    assert_eq!((line, cause.as_str()), (2, expected));
    assert_eq!(fix, "put switches or racks between them");
    assert!(parse(&rack(126)).is_ok());
    let odd = "\n[fat-tree]\nports = 5\n[hosts]\n'host 0.0' = '10.0.0.1'";
    let (line, cause, _) = refused(odd);
    let expected = "the number of ports of a switch must be even and at least 2, not 5";
    assert_eq!((line, cause.as_str()), (2, expected));
    let mixed = "[racks]\na = []\n[fat-tree]\nports = 4\n[hosts]\n'host 0.0' = '10.0.0.1'";
    let (line, cause, _) = refused(mixed);
    let expected = "a generated network cannot be combined with another one, hosts-forward, \
                    speeds, switches, racks or links";
    assert_eq!((line, cause.as_str()), (3, expected));
    let alone = "hosts-forward = true\nlinks = [['a', 'b']]\n[hosts]\na = '10.0.0.1'\n\
                 b = '10.0.0.2'\n";
    assert_eq!(refused(alone).1, "the topology has no switch for undeclared hosts");
}

#[test]
fn invalid_node_addresses_and_unreadable_files_are_refused() {
    for bad in ["", "10.0.0.1:0", "10.0.0.1:x", "::1"] {
        let (line, cause, fix) = refused(&format!("[racks]\na = ['{bad}']\n"));
        assert_eq!(line, 2);
        assert!(cause.starts_with(&format!("node '{bad}' is invalid: ")), "{cause}");
        assert!(fix.starts_with("use an IPv4 address"), "{fix}");
    }
    let missing = read(Path::new("no/such/file.toml")).expect_err("the file does not exist");
    assert!(matches!(&missing.fault, Fault::Read(it) if it.kind() == ErrorKind::NotFound));
    assert_eq!(missing.line, None);
    assert_eq!(missing.fault.to_string(), "cannot read the file: no such file or directory");
}

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use crate::ports::free_port;
use crate::process::{Running, carom, run, start};
use crate::service::{Service, assert_refused};

#[test]
fn the_service_says_where_it_is_and_ends_with_ctrl_c() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let store = folder.path().to_str().expect("a UTF-8 path");
    let args = ["registry", "--store", store, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"];
    let mut service = start(&args);
    let serves = service.said.wait_for("serving at 127.0.0.1:");
    assert!(serves.contains("start nodes with --registry 127.0.0.1:"), "{serves}");
    service.said.wait_for("/metrics");
    service.said.wait_for("press Ctrl-C to stop");
    service.stop();
}

#[test]
fn the_address_of_the_service_is_all_that_nodes_need() {
    let service = Service::start(&[]);
    let flags = ["--registry", &service.address, "--interface", "127.0.0.1"];
    let args = [&["sub", "numbers", "--count", "2000", "--loss", "5%"], &flags[..]].concat();
    let mut subs = [start(&args), start(&args)];
    subs.iter_mut().for_each(|sub| drop(sub.said.wait_for("joined numbers")));
    let publish = carom(&[&["pub", "numbers", "--wait-for", "2"], &flags[..]].concat());
    let mut publisher = Running::start_piped(publish);
    publisher.feed((0..2000).map(|number: u32| number.to_string()));
    publisher.end_with(0);
    for sub in &mut subs {
        sub.end_with(0);
        let mut numbers: Vec<u32> =
            sub.wrote.seen.iter().map(|line| line.parse().expect("a number")).collect();
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..2000), "{:#?}", sub.said.seen);
    }
}

#[test]
fn status_and_members_are_told_to_people_and_programs() {
    let service = Service::start(&["--cluster", "lab", "--partitions", "4"]);
    let node = service.node("numbers", &["--cluster", "lab", "--rack", "r7"]);
    let status = service.status();
    assert_eq!((&status["cluster"], &status["lease_ms"]), (&"lab".into(), &3000.into()));
    assert_eq!(status["partitions"].as_array().map(Vec::len), Some(4));
    let known = &status["nodes"][0];
    assert_eq!((&known["node"], &known["rack"]), (&node.id.as_str().into(), &"r7".into()));
    assert_eq!((&known["linked"], &known["incarnation"]), (&true.into(), &0.into()));
    let told = service.told();
    for part in [&*node.id, "r7", "cluster \"lab\"", "4 partitions", "1 group "] {
        assert!(told.contains(part), "no {part} in {told}");
    }
    let http = ["--http", &service.http];
    let members =
        run(&[&["registry", "members", "numbers", "--json"], &http[..]].concat(), 0).json();
    assert_eq!(members["members"][0]["node"], node.id.as_str(), "{members}");
    let members = run(&[&["registry", "members", "numbers"], &http[..]].concat(), 0);
    assert!(members.wrote.seen.iter().any(|line| line.contains(&node.id)));
    let empty = run(&[&["registry", "members", "letters"], &http[..]].concat(), 1);
    assert!(empty.said.seen.iter().any(|line| line.contains("'letters' has no members")));
}

#[test]
fn what_cannot_be_served_is_refused_with_a_cause_and_a_fix() {
    let service = Service::start(&[]);
    assert_refused(&service.on_same_store(&["--listen", "127.0.0.1:0"]), "in use");
    let folder = tempfile::tempdir().expect("a folder for the test");
    let own = ["registry", "--no-http", "--store", folder.path().to_str().expect("a UTF-8 path")];
    assert_refused(&[&own[..], &["--listen", &service.address]].concat(), &service.address);
    assert_refused(&[&own[..], &["--listen", "192.0.2.1:0"]].concat(), "192.0.2.1:0");
    assert_refused(&[&own[..], &["--detection", "50ms"]].concat(), "too short");
    assert_refused(&[&own[..], &["--ring-time", "1s"]].concat(), "--ring");
    assert_refused(&[&own[..], &["--ring", "--ring-time", "1ms"]].concat(), "--ring-time");
    assert_refused(&[&own[..], &["--partitions", "0"]].concat(), "0");
    assert_refused(&["registry", "--no-http", "--store", "/proc/carom"], "/proc/carom");
    assert_refused(&["sub", "x", "--registry", "no.such.host.invalid"], "no.such.host.invalid");
    let free = format!("127.0.0.1:{}", free_port());
    assert_refused(&["registry", "status", "--http", &free], &free);
    let sub = ["sub", "x", "--interface", "127.0.0.1", "--registry", &free];
    assert_refused(&sub, "no answer from the registry");
}

#[test]
fn an_answer_that_breaks_off_is_refused_in_plain_words() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound").to_string();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("carom connects");
        let mut request = [0; 1024];
        let _ = stream.read(&mut request).expect("carom asks");
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{";
        stream.write_all(head.as_bytes()).expect("carom reads");
    });
    let cause = format!("incomplete response from {address}");
    assert_refused(&["registry", "status", "--http", &address], &cause);
}

#[test]
fn a_store_keeps_to_its_cluster_and_its_partitions() {
    let mut service = Service::start(&["--cluster", "lab"]);
    service.running.stop();
    let listen = ["--listen", "127.0.0.1:0"];
    let with = |more: &[&'static str]| service.on_same_store(&[&listen[..], more].concat());
    assert_refused(&with(&["--cluster", "other"]), "lab");
    assert_refused(&with(&["--cluster", "lab", "--partitions", "8"]), "16");
}

#[test]
fn a_store_that_lost_its_data_is_begun_anew_only_by_a_flag() {
    let mut service = Service::start(&[]);
    service.running.stop();
    let listen = ["--listen", "127.0.0.1:0"];
    let args = service.on_same_store(&listen);
    let place = args.iter().position(|arg| *arg == "--store").expect("it has a store") + 1;
    let database = std::path::Path::new(&args[place]).join("membership.redb");
    let mut damaged = std::fs::read(&database).expect("the database exists");
    damaged[4096..20_000].fill(0xAA);
    for (bytes, cause) in [(damaged, "the store is damaged"), (Vec::new(), "is empty")] {
        std::fs::write(&database, bytes).expect("the directory belongs to the test");
        assert_refused(&args, cause);
    }
    std::fs::remove_file(&database).expect("the directory belongs to the test");
    assert_refused(&args, "is missing");
    let mut anew = start(&[&args[..], &["--new-store"]].concat());
    anew.said.wait_for("serving at");
    anew.stop();
}

#[test]
fn a_contradicting_join_is_refused_with_both_settings() {
    let service = Service::start(&[]);
    let _first = service.node("numbers", &["--rate-of-fire", "8,5"]);
    let flags = ["--registry", &service.address, "--interface", "127.0.0.1"];
    let args = [&["sub", "numbers", "--rate-of-fire", "8,3"], &flags[..]].concat();
    assert_refused(&args, "(8,5)");
    assert_refused(&args, "(8,3)");
}

#[test]
fn a_node_of_another_cluster_is_refused_with_its_name() {
    let service = Service::start(&["--cluster", "lab"]);
    let flags = ["--registry", &service.address, "--interface", "127.0.0.1"];
    let args = [&["sub", "numbers", "--cluster", "other"], &flags[..]].concat();
    assert_refused(&args, "belongs to cluster \"lab\"");
}

#[cfg(not(feature = "etcd"))]
#[test]
fn a_program_without_etcd_says_how_it_is_built_with_it() {
    let refused = run(&["registry", "--etcd", "http://127.0.0.1:2379"], 2);
    let said = &refused.said.seen;
    assert_eq!(said[0], "error: this program was built without etcd support");
    assert!(said[1].contains("--features etcd") && said[1].contains("protoc"), "{said:#?}");
}

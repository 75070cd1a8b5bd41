use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::process::{Running, carom};
use crate::service::{Service, assert_refused};

struct Field {
    service: Service,
    folder: TempDir,
    multicast_port: &'static str,
}

impl Field {
    fn new(topology: &str, multicast_port: &'static str) -> Self {
        let folder = TempDir::new().expect("a folder");
        let file = folder.path().join("net.toml");
        fs::write(&file, topology).expect("it can be written");
        let file = file.to_str().expect("a UTF-8 path");
        let service = Service::start(&["--topology", file]);
        Self { service, folder, multicast_port }
    }

    fn command(&self, args: &[&str], multicast_port: &str) -> Command {
        let mut command = carom(args);
        command.args(["--registry", &self.service.address, "--interface", "127.0.0.1"]);
        command.args(["--multicast-port", multicast_port, "--json"]);
        command.current_dir(self.folder.path());
        command
    }

    fn recv(&self, group: &str, name: &str, port: &str, multicast_port: &str) -> Running {
        let args = ["recv", "--from", group, name, "--name", name, "--timeout", "60s"];
        Running::start(self.command(&[&args[..], &["--port", port]].concat(), multicast_port))
    }

    fn send(&self, group: &str, file: &str, more: &[&str]) -> Running {
        let args = ["send", file, "--to", group];
        Running::start(self.command(&[&args[..], more].concat(), self.multicast_port))
    }

    fn write(&self, name: &str, bytes: usize) -> Vec<u8> {
        let mut rng = carom_proto::Rng::new(bytes as u64);
        let bytes: Vec<u8> =
            (0..bytes.div_ceil(8)).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
        fs::write(self.folder.path().join(name), &bytes).expect("it can be written");
        bytes
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.folder.path().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }
}

fn groups(status: &Value) -> &[Value] {
    status["multicast"]["groups"].as_array().map_or(&[], Vec::as_slice)
}

fn count(status: &Value, counter: &str) -> u64 {
    status["counters"][counter].as_u64().unwrap_or_else(|| panic!("no {counter} in {status:#}"))
}

const RACKS: &str = "[racks]\nleft = ['127.0.0.1:23151', '127.0.0.1:23152']\n\
                     right = ['127.0.0.1:23153', '127.0.0.1:23154']\n";

#[test]
fn service_places_receivers_and_the_sender_survives_its_death() {
    let mut field = Field::new(RACKS, "23150");
    let data = field.write("data", 6_000_000);
    let mut receivers = [("a", "23152"), ("b", "23153"), ("c", "23154")]
        .map(|(name, port)| field.recv("g", name, port, "23150"));
    let slow = ["--receivers", "3", "--port", "23151", "--rate", "16Mbit"];
    let mut sender = field.send("g", "data", &slow);
    let status = field.service.await_status("group of three", |status| {
        groups(status).iter().any(|group| group["receivers"] == 3)
    });
    let links = groups(&status)[0]["links"].as_array().expect("links");
    let has = |link: &str| links.iter().any(|it| it == link);
    assert!(has("left - core") && has("right - core"), "{links:?}");
    assert!(has("127.0.0.1:23153 - right"), "{links:?}");
    assert_eq!(count(&status, "manager_requests_malformed"), 0);
    assert!(count(&status, "manager_placed") >= 3);
    field.service.running.kill();
    sender.end_saying("continuing with a local one", 0);
    for (name, receiver) in ["a", "b", "c"].iter().zip(&mut receivers) {
        receiver.end_with(0);
        assert!(field.read(&format!("{name}/data")) == data, "{name} has other bytes");
    }
}

const TWO_WAYS: &str = "switches = ['north', 'south']\n\
                        links = [['left', 'north'], ['left', 'south'], ['right', 'north'], \
                        ['right', 'south']]\n[racks]\nleft = ['127.0.0.1:23161', \
                        '127.0.0.1:23162', '127.0.0.1:23165']\nright = ['127.0.0.1:23163', \
                        '127.0.0.1:23164']\n";

#[test]
fn a_link_that_one_transfer_finds_dead_is_avoided_by_another() {
    let field = Field::new(TWO_WAYS, "23160");
    let data = field.write("data", 8_000_000);
    // The other rack listens on another multicast port, so it gets everything by repair.
    let near = field.recv("g", "near", "23162", "23160");
    let far = field.recv("g", "far", "23163", "23169");
    let rate = ["--path", "multicast", "--rate", "16Mbit"];
    let args = ["--receivers", "2", "--port", "23161"];
    let sender = field.send("g", "data", &[&args[..], &rate[..]].concat());
    let status = field.service.await_status("dead link", |status| {
        status["multicast"]["dead_links"].as_array().is_some_and(|dead| !dead.is_empty())
    });
    assert!(count(&status, "manager_cuts") >= 1);
    let told = field.service.told();
    assert!(told.contains("1 group in a network of 5 hosts; links believed dead: "), "{told}");
    let dead = status["multicast"]["dead_links"].as_array().expect("links").clone();
    let other = field.recv("h", "other", "23164", "23160");
    let args = ["--receivers", "1", "--rate", "16Mbit", "--port", "23165"];
    let second = field.send("h", "data", &args);
    let links = |group: &Value| group["links"].as_array().cloned().unwrap_or_default();
    let is_other = |group: &&Value| links(group).iter().any(|it| it == "127.0.0.1:23164 - right");
    let status = field
        .service
        .await_status("second group", |status| groups(status).iter().any(|it| is_other(&it)));
    let spines = |link: &&Value| {
        let link = link.as_str().expect("a name");
        link.contains("north") || link.contains("south")
    };
    let dead_spines: Vec<&Value> = dead.iter().filter(spines).collect();
    assert!(!dead_spines.is_empty(), "{dead:?}");
    let links = groups(&status).iter().find(is_other).map(links).expect("it was awaited");
    assert!(links.iter().all(|link| !dead_spines.contains(&link)), "{links:?} and {dead:?}");
    for mut running in [sender, second, near, far, other] {
        running.end_with(0);
    }
    for name in ["near", "far", "other"] {
        assert!(field.read(&format!("{name}/data")) == data, "{name} has other bytes");
    }
}

#[test]
fn a_service_whose_topology_is_none_is_refused_with_its_line() {
    let folder = TempDir::new().expect("a folder");
    let file = |name: &str| folder.path().join(name).to_str().expect("a UTF-8 path").to_owned();
    fs::write(Path::new(&file("net.toml")), "[racks]\na = ['127.0.0.1:0']\n").expect("a file");
    let (store, topology) = (file("store"), file("net.toml"));
    let args = ["registry", "--store", &store, "--no-http", "--topology", &topology];
    assert_refused(&args, "net.toml:2: node '127.0.0.1:0' is invalid: ");
}

//! Installation of multicast trees in the network: one bridge for each switch of a topology with
//! two paths between its racks.

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::lab::{Running, build_lab, lacking};

/// The switches and hosts of a network, each in a namespace. It is removed when it is dropped.
struct Fabric {
    prefix: String,
    folder: TempDir,
}

/// Multicast between the racks can pass spine1 or spine2. Unicast always passes spine3, which is
/// not in the topology file. No port floods, so that only installed entries carry multicast.
const BUILD: &str = r#"
for n in h1 h2 h3 h4 reg leaf1 leaf2 spine1 spine2 spine3; do
    ip netns add $P$n; ip -n $P$n link set lo up
done
for s in leaf1 leaf2 spine1 spine2 spine3; do
    ip -n $P$s link add br0 type bridge mcast_snooping 1 mcast_querier 1 \
        mcast_query_response_interval 10 mcast_startup_query_count 1
    ip -n $P$s link set br0 up
done
port() {
    ip -n $P$1 link set $2 master br0 up
    bridge -n $P$1 link set dev $2 flood off mcast_flood off bcast_flood off learning off \
        mcast_router 0
}
i=1
for h in h1:leaf1 h2:leaf2 h3:leaf2 h4:leaf1 reg:leaf1; do
    n=${h%%:*}; s=${h##*:}
    ip -n $P$n link add eth0 address 02:00:00:00:00:0$i type veth peer name $n netns $P$s
    ip -n $P$n addr add 10.9.0.$i/24 dev eth0
    ip -n $P$n link set eth0 up
    ip -n $P$n route add default dev eth0
    port $s $n
    for j in 1 2 3 4 5; do
        [ $i = $j ] || ip -n $P$n neigh add 10.9.0.$j lladdr 02:00:00:00:00:0$j dev eth0 \
            nud permanent
    done
    i=$((i+1))
done
for spine in spine1 spine2 spine3; do for leaf in leaf1 leaf2; do
    ip -n $P$leaf link add $spine type veth peer name $leaf netns $P$spine
    port $leaf $spine; port $spine $leaf
done; done
fdb() { bridge -n $P$1 fdb replace 02:00:00:00:00:0$2 dev $3 master static; }
for i in 1 4 5; do fdb leaf2 $i spine3; fdb spine3 $i leaf1; done
for i in 2 3; do fdb leaf1 $i spine3; fdb spine3 $i leaf2; done
fdb leaf1 1 h1; fdb leaf1 4 h4; fdb leaf1 5 reg; fdb leaf2 2 h2; fdb leaf2 3 h3
"#;

const TOPOLOGY: &str = r#"
switches = ["leaf1", "leaf2", "spine1", "spine2"]
links = [
    ["leaf1", "spine1"], ["leaf1", "spine2"], ["leaf2", "spine1"], ["leaf2", "spine2"],
    ["h1", "leaf1"], ["h2", "leaf2"], ["h3", "leaf2"], ["h4", "leaf1"],
]
[hosts]
h1 = "10.9.0.1"
h2 = "10.9.0.2"
h3 = "10.9.0.3"
h4 = "10.9.0.4"
"#;

const REGISTRY: &str = "10.9.0.5";
const BYTES: usize = 80_000_000;
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const INSTALL: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/install-tree-in-bridges");

pub(crate) fn shell(script: &str, prefix: &str) -> String {
    let mut command = Command::new("sh");
    command.args(["-euc", script]).env("P", prefix).stdin(Stdio::null());
    let output = command.output().expect("a shell");
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns `true` if namespaces can be created and the programs of [`INSTALL`] are installed, and
/// reports otherwise.
pub(crate) fn can_install() -> bool {
    // A lab reports why namespaces cannot be created.
    if build_lab(1, crate::MTU).is_none() {
        return false;
    }
    let lacks = |tool: &&&str| {
        let found = Command::new("sh").args(["-c", &format!("command -v {tool}")]).output();
        !found.is_ok_and(|it| it.status.success())
    };
    let missing = ["jq", "flock", "bridge"].iter().find(lacks);
    if let Some(tool) = missing {
        lacking(&format!("{tool} is not installed"));
    }
    missing.is_none()
}

impl Fabric {
    fn new() -> Option<Self> {
        if !can_install() {
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder for the test");
        let fabric = Self { prefix: format!("ct{}-", std::process::id()), folder };
        shell(BUILD, &fabric.prefix);
        std::fs::write(fabric.path("network.toml"), TOPOLOGY).expect("space for a file");
        Some(fabric)
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn start(&self, host: &str, args: &[&str]) -> Running {
        let mut command = Command::new("ip");
        let namespace = format!("{}{host}", self.prefix);
        command.args(["netns", "exec", &namespace, env!("CARGO_BIN_EXE_carom")]).args(args);
        command.env("CAROM_NETNS_PREFIX", &self.prefix);
        command.env("CAROM_TREE_STATE", self.path("trees"));
        Running::start(command)
    }

    fn report(&self, state: &str, a: &str, b: &str) {
        self.start("reg", &["registry", "link", state, a, b]).ended_with(0);
    }

    fn set_link(&self, switch: &str, port: &str, state: &str) {
        shell(&format!("ip -n ${{P}}{switch} link set {port} {state}"), &self.prefix);
    }

    /// Returns the spine to which the first rack forwards the multicast of the sender.
    fn spine(&self) -> Option<String> {
        let entries = shell("bridge -n ${P}leaf1 mdb show dev br0", &self.prefix);
        let mut ports =
            entries.lines().filter(|line| line.contains(" permanent")).filter_map(|it| {
                let port = it.split_whitespace().nth(3)?;
                port.starts_with("spine").then(|| port.to_owned())
            });
        ports.next()
    }

    /// Waits until the tree passes another spine than `former`, and packets do too.
    fn await_spine(&self, former: Option<&str>) -> String {
        let give_up = Instant::now() + PATIENCE;
        loop {
            let spine = self.spine().filter(|spine| Some(spine.as_str()) != former);
            if let Some(spine) = spine {
                let before = self.received(&spine);
                while self.received(&spine) < before + 500 {
                    assert!(Instant::now() < give_up, "{spine} carries nothing");
                    thread::sleep(Duration::from_millis(20));
                }
                return spine;
            }
            assert!(Instant::now() < give_up, "the tree does not leave {former:?}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns the number of packets that the second rack has received from a spine.
    fn received(&self, spine: &str) -> u64 {
        let file = format!("/sys/class/net/{spine}/statistics/rx_packets");
        let count = shell(&format!("ip netns exec ${{P}}leaf2 cat {file}"), &self.prefix);
        count.trim().parse().expect("a count")
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        for name in ["h1", "h2", "h3", "h4", "reg", "leaf1", "leaf2", "spine1", "spine2", "spine3"]
        {
            let namespace = format!("{}{name}", self.prefix);
            // This fails if the namespace was not created: then there is nothing to remove.
            let _ = Command::new("ip").args(["netns", "delete", &namespace]).output();
        }
    }
}

#[test]
fn installed_tree_moves_the_stream_off_dead_and_reported_links() {
    let Some(fabric) = Fabric::new() else { return };
    let (store, topology) = (fabric.path("store"), fabric.path("network.toml"));
    let args = ["registry", "--store", &store, "--topology", &topology, "--on-tree", INSTALL];
    let mut registry = fabric.start("reg", &args);
    registry.said.wait_for("serving at");
    let file = fabric.path("data");
    let data: Vec<u8> =
        (0..BYTES as u32 / 4).flat_map(|it| it.wrapping_mul(0x9e37_79b9).to_le_bytes()).collect();
    std::fs::write(&file, &data).expect("space for a file");
    let receivers: Vec<(String, Running)> = ["h2", "h3", "h4"]
        .map(|host| {
            let folder = fabric.path(host);
            std::fs::create_dir(&folder).expect("space for a folder");
            let args = ["recv", "--from", "images", &folder, "--registry", REGISTRY];
            (format!("{folder}/data"), fabric.start(host, &args))
        })
        .into();
    let args = ["send", &file, "--to", "images", "--receivers", "3", "--registry", REGISTRY];
    let path = ["--path", "multicast", "--rate", "60Mbit"];
    let mut sender = fabric.start("h1", &[&args[..], &path].concat());

    let first = fabric.await_spine(None);
    fabric.set_link("leaf2", &first, "down");
    let second = fabric.await_spine(Some(&first));
    fabric.set_link("leaf2", &first, "up");
    // The receivers have reported all links of the path to the second rack.
    fabric.report("up", "leaf1", &first);
    fabric.report("up", "leaf2", &first);
    fabric.report("down", "leaf2", &second);
    assert_eq!(fabric.await_spine(Some(&second)), first);

    sender.end_with(0);
    for (copy, mut receiver) in receivers {
        receiver.end_with(0);
        assert!(std::fs::read(&copy).expect("the receiver has finished") == data, "{copy} differs");
    }
    let status = fabric.start("reg", &["registry", "status"]).ended_with(0);
    assert!(status.said.seen.iter().any(|it| it.contains("links reported as down")), "{status:?}");
    registry.stop();
}

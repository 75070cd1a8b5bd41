//! Several hosts on one machine: a network namespace for each, and a switch between them in another
//! one. Nothing is added to the machine's own network, and everything is removed at the end.

mod counters;
mod process;
mod skipping;

use std::io::Write as _;
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) use counters::Counters;
use process::PATIENCE;
pub(crate) use process::{Running, parsed};
pub(crate) use skipping::{lacking, skipped};

/// The hosts at 10.77.x.1, 10.77.x.2, and so on, each with an interface called eth0.
pub(crate) struct Lab {
    name: String,
    net: u32,
    hosts: Vec<Host>,
}

pub(crate) struct Host {
    namespace: String,
    /// Port of the switch that leads to this host, in the namespace of the switch.
    port: String,
    switch: String,
    pub(crate) address: String,
}

impl Lab {
    /// Creates `hosts` hosts with this MTU. Returns `None` after a report if this is not permitted.
    pub(crate) fn new(hosts: usize, mtu: u32) -> Option<Self> {
        static ALLOWED: OnceLock<Result<(), String>> = OnceLock::new();
        static LABS: AtomicU32 = AtomicU32::new(0);
        if let Err(why) = ALLOWED.get_or_init(try_out) {
            lacking(why);
            return None;
        }
        let net = LABS.fetch_add(1, Ordering::Relaxed);
        assert!(net <= 255, "too many labs for the network numbers");
        let name = format!("carom-{}-{net}", std::process::id());
        // From here on, dropping the lab removes its parts, even if a later step fails.
        let mut lab = Self { name, net, hosts: Vec::new() };
        lab.hosts = (1..=hosts).map(|number| lab.host(number)).collect();
        lab.build(mtu);
        lab.await_links();
        Some(lab)
    }

    pub(crate) fn at(&self, number: usize) -> &Host {
        &self.hosts[number - 1]
    }

    pub(crate) fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    pub(crate) fn nobody(&self) -> String {
        format!("10.77.{}.250", self.net)
    }

    fn switch(&self) -> String {
        format!("{}-switch", self.name)
    }

    fn host(&self, number: usize) -> Host {
        Host {
            namespace: format!("{}-{number}", self.name),
            port: format!("port{number}"),
            switch: self.switch(),
            address: format!("10.77.{}.{number}", self.net),
        }
    }

    fn build(&self, mtu: u32) {
        let switch = self.switch();
        must(&["netns", "add", &switch]);
        // Without snooping, the switch forwards multicast without a querier.
        let bridge = "link add name switch mtu MTU type bridge mcast_snooping 0 forward_delay 0
            link set switch up";
        batch(&switch, &bridge.replace("MTU", &mtu.to_string()));
        // A firewall for routed packets must not filter switched ones.
        for table in ["iptables", "ip6tables", "arptables"] {
            let file = format!("/proc/sys/net/bridge/bridge-nf-call-{table}");
            let off = format!("test ! -e {file} || echo 0 > {file}");
            succeed(Command::new("ip").args(["netns", "exec", &switch, "sh", "-c", &off]));
        }
        for host in &self.hosts {
            let Host { namespace, port, address, .. } = host;
            must(&["netns", "add", namespace]);
            let cable = format!(
                "link add name {port} mtu {mtu} type veth peer name eth0 mtu {mtu} netns {namespace}
                link set {port} master switch up"
            );
            batch(&switch, &cable);
            let interface = format!(
                "link set lo up
                address add {address}/24 brd + dev eth0
                link set eth0 up
                route add default dev eth0"
            );
            batch(namespace, &interface);
        }
    }

    /// Waits until the kernel has detected the carrier of each new interface. Until then, the
    /// interface drops outgoing packets.
    fn await_links(&self) {
        let give_up = Instant::now() + PATIENCE;
        for host in &self.hosts {
            let links = [(&host.namespace, "eth0"), (&host.switch, host.port.as_str())];
            for (namespace, link) in links {
                while !must(&["-n", namespace, "link", "show", link]).contains("state UP") {
                    assert!(Instant::now() < give_up, "{link} of {namespace} does not come up");
                    thread::sleep(Duration::from_millis(2));
                }
            }
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for host in &self.hosts {
            take_away(&host.namespace);
        }
        take_away(&self.switch());
    }
}

impl Host {
    /// Makes the switch drop multicast to this host silently.
    pub(crate) fn deafen(&self) {
        let Self { switch, port, .. } = self;
        batch(switch, &format!("link set dev {port} type bridge_slave mcast_flood off"));
    }

    /// Makes the switch drop packets to the host above `mtu` silently, as if misconfigured. Packets
    /// that are segmented later would pass; see [`Host::cut_at_once`].
    pub(crate) fn narrow(&self, mtu: u32) {
        batch(&self.switch, &format!("link set dev {} mtu {mtu}", self.port));
    }

    /// Makes the host send each packet separately, as on a real cable.
    pub(crate) fn cut_at_once(&self) {
        batch(&self.namespace, "link set dev eth0 gso_max_segs 1");
    }

    pub(crate) fn set_mtu(&self, mtu: u32) {
        batch(&self.namespace, &format!("link set dev eth0 mtu {mtu}"));
    }

    pub(crate) fn unplug(&self) {
        batch(&self.switch, &format!("link set dev {} down", self.port));
    }

    pub(crate) fn plug(&self) {
        batch(&self.switch, &format!("link set dev {} up", self.port));
    }

    pub(crate) fn move_to(&self, number: usize) {
        let (net, _) = self.address.rsplit_once('.').expect("it is an IPv4 address");
        let lines = format!(
            "address del {}/24 dev eth0
            address add {net}.{number}/24 brd + dev eth0
            route replace default dev eth0",
            self.address
        );
        batch(&self.namespace, &lines);
    }

    pub(crate) fn forbid_multicast(&self) -> Result<(), String> {
        let rules = "add table ip carom; \
            add chain ip carom out { type filter hook output priority 0; policy accept; }; \
            add rule ip carom out ip daddr 239.0.0.0/8 drop";
        self.firewall(rules)
    }

    pub(crate) fn firewall(&self, rules: &str) -> Result<(), String> {
        let output = self.command("nft", &[rules]).output().map_err(|error| error.to_string())?;
        match output.status.success() {
            true => Ok(()),
            false => Err(format!("nft: {}", String::from_utf8_lossy(&output.stderr).trim())),
        }
    }

    pub(crate) fn interface_down(&self) {
        batch(&self.namespace, "link set eth0 down");
    }

    pub(crate) fn interface_up(&self) {
        batch(&self.namespace, "link set eth0 up\nroute add default dev eth0");
    }

    pub(crate) fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace, program]).args(args).stdin(Stdio::null());
        command
    }

    pub(crate) fn start(&self, args: &[&str]) -> Running {
        Running::start(self.command(env!("CARGO_BIN_EXE_carom"), args))
    }

    pub(crate) fn start_with_foreign_sys(&self, args: &[&str]) -> Running {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.namespace));
        command.arg(env!("CARGO_BIN_EXE_carom")).args(args).stdin(Stdio::null());
        Running::start(command)
    }

    /// Starts carom on this host without the privilege to exceed the system's limits.
    pub(crate) fn start_unprivileged(&self, args: &[&str]) -> Running {
        let without = ["--bounding-set=-net_admin", env!("CARGO_BIN_EXE_carom")];
        Running::start(self.command("setpriv", &[&without[..], args].concat()))
    }

    pub(crate) fn pipe(
        &self,
        lines: impl Iterator<Item = String> + Send + 'static,
        args: &[&str],
    ) -> Running {
        let mut running = Running::start_piped(self.command(env!("CARGO_BIN_EXE_carom"), args));
        running.feed(lines);
        running
    }

    pub(crate) fn counters(&self) -> Counters {
        let files = ["/proc/net/snmp", "/proc/net/netstat"];
        Counters::parse(&succeed(&mut self.command("cat", &files)))
    }
}

fn try_out() -> Result<(), String> {
    let name = format!("carom-{}-try", std::process::id());
    let tried = ip(&["netns", "add", &name])
        .and_then(|_| ip(&["-n", &name, "link", "add", "name", "switch", "type", "bridge"]))
        .and_then(|_| ip(&["-n", &name, "link", "add", "name", "port", "type", "veth"]))
        .and_then(|_| ip(&["netns", "exec", &name, "true"]));
    take_away(&name);
    tried.map(|_| ()).map_err(|why| format!("needs root and network namespaces: {why}"))
}

fn take_away(namespace: &str) {
    // This fails if the namespace was not created: then there is nothing to remove.
    let _ = ip(&["netns", "delete", namespace]);
}

fn ip(args: &[&str]) -> Result<String, String> {
    let output = Command::new("ip").args(args).stdin(Stdio::null()).output();
    let Output { status, stdout, stderr } = output.map_err(|error| format!("ip: {error}"))?;
    match status.success() {
        true => Ok(String::from_utf8_lossy(&stdout).into_owned()),
        false => Err(format!("ip {}: {}", args.join(" "), String::from_utf8_lossy(&stderr).trim())),
    }
}

fn must(args: &[&str]) -> String {
    ip(args).unwrap_or_else(|why| panic!("{why}"))
}

fn batch(namespace: &str, lines: &str) {
    let mut child = Command::new("ip")
        .args(["-n", namespace, "-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("ip is installed");
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin.write_all(lines.as_bytes()).expect("ip reads its input");
    drop(stdin);
    let output = child.wait_with_output().expect("ip ends with its input");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "in {namespace}: {lines}: {errors}");
}

fn succeed(command: &mut Command) -> String {
    let output = command.output().expect("ip is installed");
    let Output { status, stdout, stderr } = output;
    assert!(status.success(), "{command:?}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8_lossy(&stdout).into_owned()
}

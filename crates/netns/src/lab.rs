use std::process::Command;
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::cut::{self, Cut};
use crate::error::Error;
use crate::host::Host;
use crate::isolation;
use crate::layout::Layout;
use crate::namespace::Namespace;
use crate::owner::Owner;
use crate::rack::Rack;
use crate::tool;

/// A network of hosts in racks. Dropping it removes it.
#[derive(Debug)]
pub struct Lab {
    plan: Plan,
    switch: Namespace,
    hosts: Vec<Host>,
    racks: Vec<Rack>,
    is_owned: bool,
}

/// The description by which another process uses a lab: see [`Lab::attach`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Size and links of the lab.
    pub layout: Layout,
    /// Beginning of the names of its namespaces.
    prefix: String,
}

impl Lab {
    /// Builds a lab. Returns when all links are up.
    ///
    /// A process may build several labs. They have the same addresses and no connection.
    pub fn build(layout: &Layout) -> Result<Self, Error> {
        layout.validate()?;
        let mut lab = Self::attach(&Plan { layout: layout.clone(), prefix: prefix()? });
        // From here on, dropping the lab removes its parts, even if a later step fails.
        lab.is_owned = true;
        lab.add_namespaces()?;
        lab.build_switch()?;
        for host in &lab.hosts {
            lab.build_host(host)?;
        }
        lab.await_links()?;
        Ok(lab)
    }

    /// Returns a lab that another process has built and will remove. The caller must be in the same
    /// mount namespace.
    pub fn attach(plan: &Plan) -> Self {
        let Plan { layout, prefix } = plan;
        let switch = Namespace::new(format!("{prefix}switch"));
        let hosts = (1..=layout.hosts()).map(|number| Host::new(number, layout, prefix, &switch));
        let racks = (1..=layout.racks).map(|rack| Rack::new(rack, layout.racks > 1, &switch));
        let (hosts, racks) = (hosts.collect(), racks.collect());
        Self { plan: plan.clone(), switch, hosts, racks, is_owned: false }
    }

    /// Returns the description of the lab.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the hosts in the order of their numbers.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// Returns a host. Hosts are numbered from 1.
    ///
    /// # Panics
    ///
    /// Panics if there is no such host.
    pub fn host(&self, number: usize) -> &Host {
        &self.hosts[number - 1]
    }

    /// Returns the racks in the order of their numbers.
    pub fn racks(&self) -> &[Rack] {
        &self.racks
    }

    /// Returns a rack. Racks are numbered from 1.
    ///
    /// # Panics
    ///
    /// Panics if there is no such rack.
    pub fn rack(&self, number: usize) -> &Rack {
        &self.racks[number - 1]
    }

    /// Returns the namespace of the bridges: `rack1` and so on, and `core` if there are several.
    pub fn switch(&self) -> &Namespace {
        &self.switch
    }

    /// Interrupts a connection.
    ///
    /// # Panics
    ///
    /// Panics if there is no such host or rack.
    pub fn cut(&self, cut: &Cut) -> Result<(), Error> {
        self.cut_together(slice::from_ref(cut))
    }

    /// Interrupts several connections in one step, such as all between the sides of a partition.
    ///
    /// Silent cuts begin together, in one transaction of the kernel. Cables and uplinks are taken
    /// down meanwhile, one after another within milliseconds.
    ///
    /// # Panics
    ///
    /// Panics if there is no such host or rack.
    pub fn cut_together(&self, cuts: &[Cut]) -> Result<(), Error> {
        self.change(cuts, "down", "add element bridge carom_cuts ELEMENT\n")
    }

    /// Restores a connection. It may be whole already.
    ///
    /// # Panics
    ///
    /// Panics if there is no such host or rack.
    pub fn heal(&self, cut: &Cut) -> Result<(), Error> {
        self.heal_together(slice::from_ref(cut))
    }

    /// Restores several connections in one step, like [`Lab::cut_together`]. Some may be whole
    /// already.
    ///
    /// # Panics
    ///
    /// Panics if there is no such host or rack.
    pub fn heal_together(&self, cuts: &[Cut]) -> Result<(), Error> {
        let delete = "add element bridge carom_cuts ELEMENT
            delete element bridge carom_cuts ELEMENT\n";
        self.change(cuts, "up", delete)
    }

    /// Restores all connections in one step.
    pub fn heal_all(&self) -> Result<(), Error> {
        let ports = self.hosts.iter().map(Host::port);
        let uplinks = self.racks.iter().map(Rack::uplink).filter(|_| self.racks.len() > 1);
        let lines = ports.chain(uplinks).map(|interface| format!("link set {interface} up\n"));
        let delete = "add table bridge carom_cuts\ndelete table bridge carom_cuts";
        self.apply(&lines.collect::<String>(), delete)
    }

    fn change(&self, cuts: &[Cut], state: &str, template: &str) -> Result<(), Error> {
        let interfaces = cuts.iter().filter_map(|cut| cut.interface(&self.hosts, &self.racks));
        let lines: String = interfaces.map(|it| format!("link set {it} {state}\n")).collect();
        let elements = cuts.iter().filter_map(|cut| cut.element(&self.hosts));
        let changes: String = elements.map(|it| template.replace("ELEMENT", &it)).collect();
        let table = if changes.is_empty() { "" } else { cut::TABLE };
        self.apply(&lines, &format!("{table}{changes}"))
    }

    /// Runs lines of `ip -batch` and an nft script in the switch at the same time. Either may be
    /// empty.
    fn apply(&self, lines: &str, script: &str) -> Result<(), Error> {
        let links = (!lines.is_empty()).then(|| self.switch.start_ip(lines)).transpose()?;
        let silent = if script.is_empty() { Ok(()) } else { self.switch.nft(script) };
        // Both end before a failure of one is returned.
        links.map_or(Ok(()), |running| running.output().map(|_| ())).and(silent)
    }

    fn namespaces(&self) -> impl Iterator<Item = &Namespace> {
        std::iter::once(&self.switch).chain(self.hosts.iter().map(Host::namespace))
    }

    fn add_namespaces(&self) -> Result<(), Error> {
        let lines = self.namespaces().map(|namespace| format!("netns add {}\n", namespace.name()));
        let mut command = Command::new("ip");
        command.args(["-batch", "-"]);
        tool::run(command, &lines.collect::<String>()).map(|_| ())
    }

    fn build_switch(&self) -> Result<(), Error> {
        let Layout { racks, mtu, .. } = self.plan.layout;
        self.switch.sysctl(&BRIDGES_WITHOUT_FIREWALL)?;
        let bridge = |name: &str| {
            format!(
                "link add name {name} mtu {mtu} type bridge forward_delay 0 mcast_snooping 1 \
                    mcast_querier 1 mcast_igmp_version 3 mcast_hash_max 65536 \
                    mcast_query_interval {QUERY_INTERVAL} \
                    mcast_startup_query_interval {QUERY_INTERVAL} \
                    mcast_query_response_interval {QUERY_RESPONSE} \
                    mcast_querier_interval {OTHER_QUERIER}
                link set {name} up\n"
            )
        };
        let mut lines = if racks > 1 { bridge("core") } else { String::new() };
        for rack in 1..=racks {
            lines += &bridge(&format!("rack{rack}"));
            if racks > 1 {
                // The core must learn the groups of each rack, and a rack must receive only those.
                // As a port to a router, the uplink carries all reports and data of its rack.
                lines += &format!(
                    "link add name up{rack} mtu {mtu} type veth peer name down{rack} mtu {mtu}
                    link set up{rack} master rack{rack} up
                    link set down{rack} master core up
                    link set dev up{rack} type bridge_slave mcast_router 2
                    link set dev down{rack} type bridge_slave mcast_router 0\n"
                );
            }
        }
        for host in &self.hosts {
            let (port, rack) = (host.port(), host.rack());
            let (name, mac) = (host.namespace().name(), host.mac());
            lines += &format!(
                "link add name {port} mtu {mtu} type veth peer name eth0 mtu {mtu} address {mac} \
                    netns {name}
                link set {port} master rack{rack} up\n"
            );
        }
        self.switch.ip(&lines)
    }

    fn build_host(&self, host: &Host) -> Result<(), Error> {
        let namespace = host.namespace();
        namespace.sysctl(&MANY_GROUPS)?;
        let mut lines = format!(
            "link set lo up
            address add {}/16 brd + dev eth0
            link set eth0 up
            {}",
            host.address(),
            host.paths()
        );
        if !self.plan.layout.gso {
            lines += "link set dev eth0 gso_max_segs 1\n";
        }
        namespace.ip(&lines)
    }

    /// Waits until the kernel has detected the carrier of each new interface. Until then, the
    /// interface drops outgoing packets.
    fn await_links(&self) -> Result<(), Error> {
        let give_up = Instant::now() + PATIENCE;
        for host in &self.hosts {
            for (namespace, link) in [(host.namespace(), "eth0"), (&self.switch, host.port())] {
                while !namespace.is_up(link)? {
                    if Instant::now() > give_up {
                        let cause = format!("{link} of {} does not come up", namespace.name());
                        return Err(Error::new(cause, "check the log of the kernel: dmesg"));
                    }
                    thread::sleep(Duration::from_millis(2));
                }
            }
        }
        Ok(())
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if self.is_owned {
            // This fails for a namespace that was not created: then there is nothing to remove.
            self.namespaces().for_each(|namespace| drop(namespace.delete()));
        }
    }
}

/// Returns the owner in the name of a namespace, if the name has the form that [`prefix`] creates.
pub(crate) fn owner_of(name: &str) -> Option<Owner> {
    let (prefix, _) = name.split_once('.')?;
    let mut parts = prefix.strip_prefix("carom-")?.split('-');
    let owner = Owner { pid: parts.next()?.parse().ok()?, start: parts.next()?.parse().ok()? };
    let _lab: u32 = parts.next()?.parse().ok()?;
    parts.next().is_none().then_some(owner)
}

/// Returns a beginning for the names of a lab. Names on the machine itself identify their owner.
fn prefix() -> Result<String, Error> {
    static LABS: AtomicU32 = AtomicU32::new(0);
    let lab = LABS.fetch_add(1, Ordering::Relaxed);
    if isolation::is_isolated() {
        return Ok(if lab == 0 { String::new() } else { format!("lab{lab}.") });
    }
    let Owner { pid, start } = Owner::this_process()?;
    Ok(format!("carom-{pid}-{start}-{lab}."))
}

/// A firewall for routed packets must not filter switched ones.
const BRIDGES_WITHOUT_FIREWALL: [(&str, &str); 3] = [
    ("net/bridge/bridge-nf-call-iptables", "0"),
    ("net/bridge/bridge-nf-call-ip6tables", "0"),
    ("net/bridge/bridge-nf-call-arptables", "0"),
];
/// The default is 20 groups per socket.
const MANY_GROUPS: [(&str, &str); 2] =
    [("net/ipv4/igmp_max_memberships", "65536"), ("net/ipv4/igmp_max_msf", "1024")];
const PATIENCE: Duration = Duration::from_secs(20);
/// A bridge that missed the report of a host, which was cut off at that time, learns its groups
/// about 10 s after the end of the cut. The defaults are 31 s for the first interval of a bridge
/// and 125 s for the others. All times are in hundredths of a second.
const QUERY_INTERVAL: u32 = 1000;
const QUERY_RESPONSE: u32 = 100;
/// Time for which a bridge that hears the query of another one falls silent. Bridges query at the
/// same moment, so that all fall silent, and no host is asked in this time. Therefore it is below
/// the query interval. The default is 255 s.
const OTHER_QUERIER: u32 = QUERY_INTERVAL - QUERY_RESPONSE;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_outside_identify_their_owner() {
        let name = format!("{}h7", prefix().expect("/proc is mounted"));
        assert_eq!(owner_of(&name), Owner::this_process().ok());
        for other in ["carom-1-2-3", "carom-1-2.h1", "carom-1-2-3-4.h1", "blue", "carom-x-2-3.h1"] {
            assert_eq!(owner_of(other), None, "{other}");
        }
    }
}

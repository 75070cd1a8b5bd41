use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::capture::Capture;
use crate::drop_log::DropLog;
use crate::error::Error;
use crate::filter::Filter;
use crate::layout::Layout;
use crate::link_drops;
use crate::loss::Loss;
use crate::namespace::Namespace;
use crate::outage::Outage;

/// A host of a lab: a network namespace with the interface `eth0`.
#[derive(Debug)]
pub struct Host {
    number: usize,
    rack: usize,
    address: Ipv4Addr,
    mac: String,
    namespace: Namespace,
    switch: Namespace,
    /// Interface of the switch that leads to this host.
    port: String,
    filter: Filter,
    layout: Layout,
}

impl Host {
    pub(crate) fn new(number: usize, layout: &Layout, prefix: &str, switch: &Namespace) -> Self {
        let namespace = Namespace::new(format!("{prefix}h{number}"));
        Self {
            number,
            rack: layout.rack_of(number),
            address: layout.address(number),
            mac: layout.mac(number),
            filter: Filter::of_host(format!("h{number}"), namespace.clone()),
            namespace,
            switch: switch.clone(),
            port: format!("port{number}"),
            layout: layout.clone(),
        }
    }

    /// Returns the number of the host, from 1.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Returns the name: `h` and the number.
    pub fn name(&self) -> String {
        format!("h{}", self.number)
    }

    /// Returns the number of the host's rack, from 1.
    pub fn rack(&self) -> usize {
        self.rack
    }

    /// Returns the address with which the host was created.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Returns the Ethernet address.
    pub fn mac(&self) -> &str {
        &self.mac
    }

    /// Returns the namespace of the host.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Returns the interface of the switch that leads to the host.
    pub fn port(&self) -> &str {
        &self.port
    }

    /// Returns a command that runs `program` on the host. See [`Namespace::command`].
    pub fn command(&self, program: &str, args: &[&str]) -> Command {
        self.namespace.command(program, args)
    }

    /// Runs `work` in a new thread on the host, and waits for its result. See [`Namespace::enter`].
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
        self.namespace.enter(work)
    }

    /// Replaces the losses of UDP datagrams that the host receives. Its own datagrams are not lost.
    /// An outage continues.
    pub fn set_loss(&self, loss: &Loss) -> Result<(), Error> {
        self.filter.set(loss)
    }

    /// Drops all datagrams that the host receives in the next `length`, and waits until it is over.
    /// See [`Host::begin_outage`].
    pub fn outage(&self, length: Duration) -> Result<(), Error> {
        let outage = self.begin_outage()?;
        thread::sleep(length);
        outage.end()
    }

    /// Drops all datagrams that the host receives, until the outage ends. The losses of
    /// [`Host::set_loss`] continue behind it.
    ///
    /// Fails if the host already has an outage.
    pub fn begin_outage(&self) -> Result<Outage<'_>, Error> {
        self.filter.begin_outage()
    }

    /// Starts to record the datagrams that the host loses by [`Host::set_loss`] and
    /// [`Host::outage`]. There is one record per host at a time.
    pub fn log_drops(&self, path: &Path) -> Result<DropLog, Error> {
        DropLog::start(self.filter.clone(), path)
    }

    #[cfg(test)]
    pub(crate) fn filter(&self) -> &Filter {
        &self.filter
    }

    /// Captures what the host sends and receives into a pcap file, including what it loses.
    pub fn capture(&self, path: &Path) -> Result<Capture, Error> {
        Capture::start(&self.namespace, "eth0", path)
    }

    /// Limits the rates of sending and of receiving to `bits_per_second` each, with a queue of
    /// 50 ms. `None` removes the limits.
    pub fn set_rate(&self, bits_per_second: Option<u64>) -> Result<(), Error> {
        for (namespace, interface) in [(&self.namespace, "eth0"), (&self.switch, &*self.port)] {
            let qdisc = match bits_per_second {
                Some(rate) => {
                    let burst = (rate / 8 / TIMER_HZ).max(LEAST_BURST);
                    format!(
                        "replace dev {interface} root tbf rate {rate}bit burst {burst} latency 50ms"
                    )
                }
                // Without a limit to delete, this fails: the default is put in place of any.
                None => format!("replace dev {interface} root pfifo_fast"),
            };
            let words: Vec<&str> = std::iter::once("qdisc").chain(qdisc.split(' ')).collect();
            namespace.output("tc", &words, "")?;
        }
        Ok(())
    }

    /// Returns the number of packets that the host's own link has dropped so far, in both
    /// directions. For those of a run, subtract the number before it.
    ///
    /// A packet is counted once: if it does not fit into the queue of [`Host::set_rate`] or of the
    /// kernel, or if the end that receives it has no room for it or a smaller MTU. A train of
    /// datagrams that is sent as one packet counts as one. Packets of all protocols count.
    ///
    /// Not counted are [`Host::set_loss`], outages and silent cuts, packets that a bridge does not
    /// forward because they exceed the MTU of a port, drops at the uplinks of racks, and datagrams
    /// for which the buffer of a socket has no room. [`Host::set_rate`] sets the counts of the
    /// queues to 0 when it adds or removes a limit, and keeps them when it changes one.
    pub fn link_drops(&self) -> Result<u64, Error> {
        let sent = link_drops::of_interface(&self.namespace, "eth0")?;
        let received = link_drops::of_interface(&self.switch, &self.port)?;
        Ok(sent + received)
    }

    /// Changes the largest IP packet that the host sends, in bytes.
    pub fn set_mtu(&self, mtu: u32) -> Result<(), Error> {
        self.namespace.ip(&format!("link set dev eth0 mtu {mtu}"))
    }

    /// Makes the rack's bridge drop packets to and from the host above `mtu` bytes silently, as a
    /// misconfigured switch does. Trains of datagrams pass: see [`Host::set_gso`].
    pub fn narrow(&self, mtu: u32) -> Result<(), Error> {
        self.switch.ip(&format!("link set dev {} mtu {mtu}", self.port))
    }

    /// Replaces the address, as a new lease of DHCP does. [`Host::address`] stays the first one.
    pub fn set_address(&self, address: Ipv4Addr) -> Result<(), Error> {
        self.namespace.ip(&format!(
            "address flush dev eth0 scope global
            address add {address}/16 brd + dev eth0
            {}",
            self.paths()
        ))
    }

    /// Takes the host's interface down, or up again with the route and the permanent neighbours of
    /// the lab. If it cannot be completely up, it stays down.
    pub fn set_up(&self, is_up: bool) -> Result<(), Error> {
        let down = "link set eth0 down";
        if !is_up {
            return self.namespace.ip(down);
        }
        let completed = self.namespace.ip(&format!("link set eth0 up\n{}", self.paths()));
        completed.inspect_err(|_| {
            // The first error is the reason of the second.
            let _ = self.namespace.ip(down);
        })
    }

    /// Returns lines of `ip -batch` that add what the kernel discards when the interface goes down
    /// or loses its address: the default route and the neighbours.
    ///
    /// All namespaces share one table of neighbours of about 1000 entries. Permanent ones do not
    /// count, so that labs of any size work without changes to the machine.
    pub(crate) fn paths(&self) -> String {
        let others = (1..=self.layout.hosts()).filter(|other| *other != self.number);
        let neighbours = others.map(|other| {
            let (address, mac) = (self.layout.address(other), self.layout.mac(other));
            format!("neighbour replace {address} lladdr {mac} nud permanent dev eth0\n")
        });
        let route = "route replace default dev eth0\n".to_owned();
        std::iter::once(route).chain(neighbours).collect()
    }

    /// Sends each datagram separately, or allows trains of datagrams.
    pub fn set_gso(&self, is_on: bool) -> Result<(), Error> {
        let segments = if is_on { MOST_SEGMENTS } else { 1 };
        self.namespace.ip(&format!("link set dev eth0 gso_max_segs {segments}"))
    }
}

const TIMER_HZ: u64 = 250;
/// A packet of the largest size must fit.
const LEAST_BURST: u64 = 66_000;
const MOST_SEGMENTS: u32 = 65_535;

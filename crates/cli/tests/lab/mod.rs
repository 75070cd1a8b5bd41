//! Hosts of a lab of network namespaces, on which tests run `carom`.

mod counters;
mod permitted;
mod process;
mod skipping;

use std::net::Ipv4Addr;
use std::process::{Command, Stdio};

pub(crate) use carom_netns::{Cut, Host, Lab};
use carom_netns::{Error, Layout};
pub(crate) use counters::Counters;
pub(crate) use permitted::permitted;
pub(crate) use process::{Running, parsed};
pub(crate) use skipping::{lacking, skipped};

/// An address of the lab that no host has.
pub(crate) const NOBODY: Ipv4Addr = Ipv4Addr::new(10, 77, 1, 250);

/// Builds a lab of one rack, whose hosts send trains of datagrams as one packet. Returns `None`
/// after a report if this machine does not permit it.
pub(crate) fn build_lab(hosts_per_rack: usize, mtu: u32) -> Option<Lab> {
    permitted(Lab::build(&Layout { racks: 1, hosts_per_rack, mtu, gso: true }))
}

/// Processes of `carom` on a host.
pub(crate) trait RunCarom {
    fn start(&self, args: &[&str]) -> Running;

    /// Starts carom, and writes `lines` to its standard input.
    fn pipe(&self, lines: impl Iterator<Item = String> + Send + 'static, args: &[&str]) -> Running;

    /// Starts carom without the privilege to exceed the system's limits.
    fn start_unprivileged(&self, args: &[&str]) -> Running;

    /// Starts carom with the `/sys` of the machine instead of that of the host.
    fn start_with_foreign_sys(&self, args: &[&str]) -> Running;

    fn counters(&self) -> Counters;
}

impl RunCarom for Host {
    fn start(&self, args: &[&str]) -> Running {
        Running::start(self.command(CAROM, args))
    }

    fn pipe(&self, lines: impl Iterator<Item = String> + Send + 'static, args: &[&str]) -> Running {
        let mut running = Running::start_piped(self.command(CAROM, args));
        running.feed(lines);
        running
    }

    fn start_unprivileged(&self, args: &[&str]) -> Running {
        let without = ["--bounding-set=-net_admin", CAROM];
        Running::start(self.command("setpriv", &[&without[..], args].concat()))
    }

    fn start_with_foreign_sys(&self, args: &[&str]) -> Running {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.namespace().name()));
        command.arg(CAROM).args(args).stdin(Stdio::null());
        Running::start(command)
    }

    fn counters(&self) -> Counters {
        let files = ["/proc/net/snmp", "/proc/net/netstat"];
        let output = self.command("cat", &files).output().expect("ip is installed");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Counters::parse(&String::from_utf8_lossy(&output.stdout))
    }
}

const CAROM: &str = env!("CARGO_BIN_EXE_carom");

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use carom_netns::{Isolation, Lab, Layout, isolate};
use carom_sim::{Media, Medium, Topology};
use carom_terminal::CliError;

use super::account::Account;
use super::closing::Closing;
use super::sockets::Sockets;
use crate::net::refused;

/// A lab whose hosts carry the datagrams of worlds.
///
/// A world uses the first hosts of the lab. Each world has its own port, so that it never receives
/// a datagram of another.
#[derive(Debug)]
pub(crate) struct LabMedia {
    lab: Arc<Lab>,
    account: Arc<Account>,
    worlds: AtomicU16,
}

impl LabMedia {
    /// Runs this program again in private namespaces, and builds a lab there. Outside, returns the
    /// exit code of that run.
    pub(crate) fn enter(hosts: u32) -> Result<Result<Self, u8>, CliError> {
        match isolate().map_err(|error| refused(&error))? {
            Isolation::Ended(code) => Ok(Err(code)),
            Isolation::Inside(_) => Self::build(hosts as usize).map(Ok),
        }
    }

    fn build(hosts: usize) -> Result<Self, CliError> {
        // The medium adds a byte to the largest datagrams.
        let layout = Layout { hosts_per_rack: hosts, mtu: MTU, ..Layout::default() };
        let lab = Lab::build(&layout).map_err(|error| refused(&error))?;
        Ok(Self { lab: Arc::new(lab), account: Arc::default(), worlds: AtomicU16::new(0) })
    }

    /// Returns `true` if a socket has failed, so that further results are void.
    pub(crate) fn has_failed(&self) -> bool {
        self.account.error().is_some()
    }

    /// Returns what happened in all worlds that have ended, or the first error of their sockets.
    pub(crate) fn close(&self) -> Result<Closing, CliError> {
        match self.account.error() {
            Some(error) => Err(CliError::new(error, "check `ulimit -n`, or use fewer hosts")),
            None => {
                let (kernel_drops, lag) = (self.account.kernel_drops(), self.account.lag());
                Ok(Closing { kernel_drops, lag_ms: lag.as_secs_f64() * 1e3 })
            }
        }
    }
}

impl Media for LabMedia {
    fn create(&self, topology: &Topology) -> Box<dyn Medium> {
        let world = self.worlds.fetch_add(1, Ordering::Relaxed) % WORLDS;
        let hosts = topology.hosts() as usize;
        Box::new(Sockets::open(&self.lab, hosts, world, Arc::clone(&self.account)))
    }
}

const MTU: u32 = 1600;
/// Number of worlds after which ports are used again.
const WORLDS: u16 = 20_000;

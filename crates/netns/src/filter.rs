//! The table of nft that drops and logs datagrams on receipt.

use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use crate::error::Error;
use crate::loss::Loss;
use crate::namespace::Namespace;
use crate::outage::Outage;
use crate::outages::{Driver, Sets, Toggle};

/// Drops UDP datagrams over IPv4 that arrive at one interface.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    /// Host or interface for messages.
    name: String,
    namespace: Namespace,
    interface: String,
    /// Family and name.
    table: String,
    hook: &'static str,
    /// Condition of nft under which a packet of the interface may be dropped.
    matching: &'static str,
    /// Group of nflog that receives what is dropped.
    log_group: u16,
    /// The losses that a thread drives. The lock is held while they are replaced.
    driven: Arc<Mutex<Option<Driver>>>,
    /// Locked during an outage that [`Filter::begin_outage`] has begun. The losses have another
    /// lock and other sets, so that neither waits for the other.
    forced: Arc<Mutex<()>>,
}

impl Filter {
    /// Creates the filter of a host, behind the IP layer. Each host draws for itself. The looped
    /// copies of its own multicasts are not dropped.
    pub(crate) fn of_host(name: String, namespace: Namespace) -> Self {
        Self {
            name,
            namespace,
            interface: "eth0".to_owned(),
            table: "inet carom_loss".to_owned(),
            hook: "input",
            matching: "meta nfproto ipv4 meta l4proto udp fib saddr type != local",
            log_group: 1,
            driven: Arc::default(),
            forced: Arc::default(),
        }
    }

    /// Creates the filter of a rack's uplink, in front of its bridge. One draw applies to all hosts
    /// of the rack.
    pub(crate) fn of_uplink(switch: Namespace, interface: &str, log_group: u16) -> Self {
        Self {
            name: interface.to_owned(),
            namespace: switch,
            interface: interface.to_owned(),
            table: format!("bridge carom_loss_{interface}"),
            hook: "prerouting",
            // A datagram in fragments is lost with the first one, so that it is drawn once.
            matching: "ether type ip ip protocol udp ip frag-off & 0x1fff == 0",
            log_group,
            driven: Arc::default(),
            forced: Arc::default(),
        }
    }

    /// Replaces the losses. An outage continues.
    pub(crate) fn set(&self, loss: &Loss) -> Result<(), Error> {
        loss.validate()?;
        let mut driven = self.driven.lock().unwrap_or_else(PoisonError::into_inner);
        *driven = None;
        self.create()?;
        DRIVEN.empty(&self.namespace, &self.table)?;
        self.replace_losses(loss.condition())?;
        *driven = self.drive(loss)?;
        Ok(())
    }

    /// Begins to drop everything. The losses continue behind the outage.
    pub(crate) fn begin_outage(&self) -> Result<Outage<'_>, Error> {
        let only = match self.forced.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                let cause = format!("{} already has an outage", self.name);
                return Err(Error::new(cause, "wait until it is over, or end it"));
            }
        };
        self.create()?;
        Outage::begin(self.toggle(FORCED)?, only)
    }

    /// Starts the thread for losses that need one.
    fn drive(&self, loss: &Loss) -> Result<Option<Driver>, Error> {
        let driver = match *loss {
            Loss::Outages { length, period } => {
                Driver::periodic(self.toggle(DRIVEN)?, length, period)?
            }
            Loss::GilbertElliott { good, bad, seed } => {
                Driver::random(self.toggle(DRIVEN)?, good, bad, seed)?
            }
            Loss::None | Loss::Independent { .. } | Loss::Bursts { .. } => return Ok(None),
        };
        Ok(Some(driver))
    }

    /// Creates the table, and ends the log of a process that did not end it.
    pub(crate) fn end_abandoned_log(&self) -> Result<(), Error> {
        self.create()?;
        self.namespace.nft(&format!("flush chain {} record", self.table))
    }

    /// Begins to log what is dropped, and to count what is logged. No log is in progress.
    ///
    /// Each packet is both logged and counted or neither, because nft changes all rules at once.
    pub(crate) fn start_log(&self) -> Result<(), Error> {
        let Self { table, log_group, .. } = self;
        self.namespace.nft(&format!(
            "add counter {table} logged
            flush chain {table} record
            delete counter {table} logged
            add counter {table} logged
            add rule {table} record counter name \"logged\" log group {log_group} \
                queue-threshold 1
            "
        ))
    }

    /// Ends the log. Returns the number of packets logged since its start.
    pub(crate) fn stop_log(&self) -> Result<u64, Error> {
        self.namespace.nft(&format!("flush chain {} record", self.table))?;
        let words = format!("-j list counter {} logged", self.table);
        let words: Vec<&str> = words.split(' ').collect();
        let text = self.namespace.output("nft", &words, "")?;
        let report: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        let objects = report["nftables"].as_array().into_iter().flatten();
        let mut counts = objects.filter_map(|object| object["counter"]["packets"].as_u64());
        counts.next().ok_or_else(|| {
            let cause = format!("nft did not report the counter of {}: {text}", self.table);
            Error::new(cause, "use nft 1.0 or later")
        })
    }

    pub(crate) fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    pub(crate) fn log_group(&self) -> u16 {
        self.log_group
    }

    /// Creates the table unless it exists. Its losses and its log stay.
    fn create(&self) -> Result<(), Error> {
        let Self { table, hook, matching, interface, .. } = self;
        self.namespace.nft(&format!(
            "add table {table}
            add set {table} outage {{ type ifname; }}
            add set {table} healthy {{ type ifname; }}
            add set {table} forced {{ type ifname; }}
            add set {table} unforced {{ type ifname; }}
            add chain {table} record
            add chain {table} discard
            add chain {table} losses
            add chain {table} receive {{ type filter hook {hook} priority 0; }}
            flush chain {table} receive
            flush chain {table} discard
            add rule {table} discard jump record
            add rule {table} discard drop
            add rule {table} receive iifname @forced {matching} jump discard
            add rule {table} receive iifname @outage {matching} jump discard
            add rule {table} receive iifname \"{interface}\" {matching} jump losses
            "
        ))
    }

    fn replace_losses(&self, condition: Option<String>) -> Result<(), Error> {
        let table = &self.table;
        let rule = condition.map(|it| format!("add rule {table} losses {it} jump discard\n"));
        let rule = rule.unwrap_or_default();
        let script = format!("flush chain {table} losses\n{rule}");
        self.namespace.nft(&script)
    }

    fn toggle(&self, sets: Sets) -> Result<Toggle, Error> {
        Toggle::open(&self.namespace, &self.table, sets, &self.interface)
    }
}

/// The sets of the losses that a thread drives.
const DRIVEN: Sets = Sets { out: "outage", healthy: "healthy" };
/// The sets of the outages that a caller begins.
const FORCED: Sets = Sets { out: "forced", healthy: "unforced" };

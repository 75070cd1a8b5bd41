//! The table of nft that drops and logs datagrams on receipt.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::error::Error;
use crate::loss::Loss;
use crate::namespace::Namespace;
use crate::outages::{Driver, Toggle};

/// Drops UDP datagrams over IPv4 that arrive at one interface.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    namespace: Namespace,
    interface: String,
    /// Family and name.
    table: String,
    hook: &'static str,
    /// Condition of nft under which a packet of the interface may be dropped.
    matching: &'static str,
    /// Group of nflog that receives what is dropped.
    log_group: u16,
    /// The losses that a thread drives. The lock is held while losses change.
    driven: Arc<Mutex<Option<(Loss, Driver)>>>,
}

impl Filter {
    /// Creates the filter of a host, behind the IP layer. Each host draws for itself. The looped
    /// copies of its own multicasts are not dropped.
    pub(crate) fn of_host(namespace: Namespace) -> Self {
        Self {
            namespace,
            interface: "eth0".to_owned(),
            table: "inet carom_loss".to_owned(),
            hook: "input",
            matching: "meta nfproto ipv4 meta l4proto udp fib saddr type != local",
            log_group: 1,
            driven: Arc::default(),
        }
    }

    /// Creates the filter of a rack's uplink, in front of its bridge. One draw applies to all hosts
    /// of the rack.
    pub(crate) fn of_uplink(switch: Namespace, interface: &str, log_group: u16) -> Self {
        Self {
            namespace: switch,
            interface: interface.to_owned(),
            table: format!("bridge carom_loss_{interface}"),
            hook: "prerouting",
            // A datagram in fragments is lost with the first one, so that it is drawn once.
            matching: "ether type ip ip protocol udp ip frag-off & 0x1fff == 0",
            log_group,
            driven: Arc::default(),
        }
    }

    /// Replaces the losses, at the end of an outage if there is one.
    pub(crate) fn set(&self, loss: &Loss) -> Result<(), Error> {
        loss.validate()?;
        self.replace(&mut self.driven(), loss)
    }

    /// Drops everything for `length`. The losses then continue.
    pub(crate) fn outage(&self, length: Duration) -> Result<(), Error> {
        let mut driven = self.driven();
        let suspended = driven.take().map(|(loss, _)| loss);
        self.create()?;
        let mut toggle = self.toggle()?;
        toggle.set(true)?;
        std::thread::sleep(length);
        toggle.set(false)?;
        suspended.map_or(Ok(()), |loss| self.replace(&mut driven, &loss))
    }

    fn replace(&self, driven: &mut Option<(Loss, Driver)>, loss: &Loss) -> Result<(), Error> {
        *driven = None;
        self.create()?;
        self.end_outage()?;
        self.replace_losses(loss.condition())?;
        let driver = match *loss {
            Loss::Outages { length, period } => Driver::periodic(self.toggle()?, length, period)?,
            Loss::GilbertElliott { good, bad, seed } => {
                Driver::random(self.toggle()?, good, bad, seed)?
            }
            Loss::None | Loss::Independent { .. } | Loss::Bursts { .. } => return Ok(()),
        };
        *driven = Some((*loss, driver));
        Ok(())
    }

    /// Begins to log what is dropped, and to count what is logged.
    ///
    /// Each packet is both logged and counted or neither, because nft changes all rules at once.
    pub(crate) fn start_log(&self) -> Result<(), Error> {
        self.create()?;
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
            add chain {table} record
            add chain {table} discard
            add chain {table} losses
            add chain {table} receive {{ type filter hook {hook} priority 0; }}
            flush chain {table} receive
            flush chain {table} discard
            add rule {table} discard jump record
            add rule {table} discard drop
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

    fn end_outage(&self) -> Result<(), Error> {
        let table = &self.table;
        self.namespace.nft(&format!("flush set {table} outage\nflush set {table} healthy"))
    }

    fn toggle(&self) -> Result<Toggle, Error> {
        self.end_outage()?;
        Toggle::open(&self.namespace, &self.table, &self.interface)
    }

    fn driven(&self) -> MutexGuard<'_, Option<(Loss, Driver)>> {
        self.driven.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

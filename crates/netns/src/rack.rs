use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::drop_log::DropLog;
use crate::error::Error;
use crate::filter::Filter;
use crate::loss::Loss;
use crate::namespace::Namespace;
use crate::outage::Outage;

/// A rack of a lab: a bridge for its hosts and, in a lab of several racks, an uplink to the core.
#[derive(Debug)]
pub struct Rack {
    number: usize,
    uplink: String,
    filter: Option<Filter>,
}

impl Rack {
    pub(crate) fn new(number: usize, has_uplink: bool, switch: &Namespace) -> Self {
        let uplink = format!("up{number}");
        let group = u16::try_from(number).expect("the layout is validated");
        let filter = has_uplink.then(|| Filter::of_uplink(switch.clone(), &uplink, group));
        Self { number, uplink, filter }
    }

    /// Returns the number of the rack, from 1.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Returns the interface of the switch that leads from the rack to the core.
    pub fn uplink(&self) -> &str {
        &self.uplink
    }

    /// Replaces the losses of UDP datagrams that reach the rack from other racks. One draw applies
    /// to all hosts of the rack. An outage continues.
    pub fn set_loss(&self, loss: &Loss) -> Result<(), Error> {
        self.filter()?.set(loss)
    }

    /// Drops all datagrams from other racks for `length`, and waits until it is over. See
    /// [`Rack::begin_outage`].
    pub fn outage(&self, length: Duration) -> Result<(), Error> {
        let outage = self.begin_outage()?;
        thread::sleep(length);
        outage.end()
    }

    /// Drops all datagrams from other racks, until the outage ends. The losses of
    /// [`Rack::set_loss`] continue behind it.
    ///
    /// Fails if the rack already has an outage.
    pub fn begin_outage(&self) -> Result<Outage<'_>, Error> {
        self.filter()?.begin_outage()
    }

    /// Starts to record the datagrams that [`Rack::set_loss`] and [`Rack::outage`] drop. A datagram
    /// is recorded once, and lost to all hosts of the rack.
    pub fn log_drops(&self, path: &Path) -> Result<DropLog, Error> {
        DropLog::start(self.filter()?.clone(), path)
    }

    fn filter(&self) -> Result<&Filter, Error> {
        self.filter.as_ref().ok_or_else(|| {
            Error::new("the only rack of a lab has no uplink", "use a lab of 2 racks or more")
        })
    }
}

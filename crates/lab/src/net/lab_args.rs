use std::time::Duration;

use carom_netns::{Lab, Layout, Loss};
use carom_terminal::{CliError, units};

use super::refusal::refused;

/// The options that describe a lab.
#[derive(clap::Args)]
pub(super) struct LabArgs {
    /// Number of racks, each with a bridge
    #[arg(long, default_value_t = 1, value_name = "N")]
    racks: usize,
    /// Number of hosts per rack
    #[arg(long, default_value_t = 2, value_name = "N")]
    hosts: usize,
    /// Largest IP packet in bytes
    #[arg(long, default_value_t = 1500, value_name = "BYTES")]
    mtu: u32,
    /// Let hosts send trains of datagrams as one packet: a loss then hits all of a train
    #[arg(long)]
    gso: bool,
    /// Drop this share of UDP datagrams on receipt, at each host independently
    #[arg(long, value_name = "SHARE", value_parser = units::share, default_value = "0")]
    loss: f64,
    /// Drop everything for this time once per second, at each host
    #[arg(long, value_name = "TIME", value_parser = units::duration, conflicts_with = "loss")]
    outages: Option<Duration>,
    /// Limit the rate of each host, in bits per second, in each direction
    #[arg(long, value_name = "BITS", value_parser = clap::value_parser!(u64).range(8000..))]
    rate: Option<u64>,
}

impl LabArgs {
    /// Checks the options.
    pub(super) fn validate(&self) -> Result<(), CliError> {
        let checked = self.layout().validate().and_then(|()| self.losses().validate());
        checked.map_err(|error| refused(&error))
    }

    /// Builds the lab with its losses and rates.
    pub(super) fn build(&self) -> Result<Lab, CliError> {
        let lab = Lab::build(&self.layout()).map_err(|error| refused(&error))?;
        let loss = self.losses();
        for host in lab.hosts() {
            if loss.rate() > 0.0 {
                host.set_loss(&loss).map_err(|error| refused(&error))?;
            }
            if self.rate.is_some() {
                host.set_rate(self.rate).map_err(|error| refused(&error))?;
            }
        }
        Ok(lab)
    }

    fn layout(&self) -> Layout {
        let Self { racks, hosts: hosts_per_rack, mtu, gso, .. } = *self;
        Layout { racks, hosts_per_rack, mtu, gso }
    }

    fn losses(&self) -> Loss {
        match self.outages {
            Some(length) => Loss::Outages { length, period: PERIOD },
            None => Loss::Independent { probability: self.loss },
        }
    }
}

const PERIOD: Duration = Duration::from_secs(1);

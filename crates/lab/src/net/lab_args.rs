use std::time::Duration;

use carom_netns::{Lab, Layout, Loss};
use carom_terminal::{CliError, units};

use super::loss_spec;
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
    /// Drop UDP datagrams on receipt, at each host independently: none, a share such as 1%,
    /// outages:LENGTH/PERIOD, or bursts:BAD/GOOD with mean times
    #[arg(long, value_name = "LOSS", value_parser = loss_spec::parse, default_value = "none")]
    loss: Loss,
    /// Drop UDP datagrams on their way from the core to a rack, for all hosts of the rack at once
    #[arg(long, value_name = "LOSS", value_parser = loss_spec::parse, default_value = "none")]
    uplink_loss: Loss,
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
        checked.map_err(|error| refused(&error))?;
        if self.uplink_loss.rate() > 0.0 && self.racks < 2 {
            let cause = "--uplink-loss has no effect: the only rack has no uplink";
            return Err(CliError::new(cause, "use --racks 2 or more, or --loss"));
        }
        Ok(())
    }

    /// Builds the lab with its losses and rates.
    pub(super) fn build(&self) -> Result<Lab, CliError> {
        let lab = Lab::build(&self.layout()).map_err(|error| refused(&error))?;
        let loss = self.losses();
        for host in lab.hosts() {
            if loss.rate() > 0.0 {
                let loss = loss_spec::seeded(loss, host.number());
                host.set_loss(&loss).map_err(|error| refused(&error))?;
            }
            if self.rate.is_some() {
                host.set_rate(self.rate).map_err(|error| refused(&error))?;
            }
        }
        if self.uplink_loss.rate() > 0.0 {
            for rack in lab.racks() {
                // The seeds of hosts are their numbers.
                let seed = lab.hosts().len() + rack.number();
                let loss = loss_spec::seeded(self.uplink_loss, seed);
                rack.set_loss(&loss).map_err(|error| refused(&error))?;
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
            None => self.loss,
        }
    }
}

const PERIOD: Duration = Duration::from_secs(1);

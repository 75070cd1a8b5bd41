use std::time::Duration;

use carom::{PathChoice, RateOfFire};
use carom_terminal::units;

use crate::node::Path;

/// Show loss repair between real nodes on real sockets of this machine, in one process
#[derive(clap::Args)]
#[command(after_help = EXAMPLE)]
pub(crate) struct Args {
    /// Number of nodes
    #[arg(long, value_name = "N", default_value_t = 8, allow_hyphen_values = true)]
    #[arg(value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(2..=256))]
    pub(crate) nodes: usize,
    /// Number of groups; their members are drawn at random
    #[arg(long, value_name = "N", default_value_t = 32, allow_hyphen_values = true)]
    #[arg(value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=4096))]
    pub(crate) groups: usize,
    /// Members of each group [default: 10, but at most one less than the nodes; at least 2]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    #[arg(value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(2..=256))]
    pub(crate) group_size: Option<usize>,
    /// Share of datagrams that each node drops on receipt
    #[arg(long, value_name = "SHARE", default_value = "1%", allow_hyphen_values = true)]
    #[arg(value_parser = units::share)]
    pub(crate) loss: f64,
    /// Drop in bursts of N datagrams
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) burst: Option<u32>,
    /// Messages per second that each node publishes, each to a random one of its groups
    #[arg(long, value_name = "RATE", default_value = "200/s", allow_hyphen_values = true)]
    #[arg(value_parser = units::rate)]
    pub(crate) rate: f64,
    /// Sending time; a number without a unit means seconds
    #[arg(long, value_name = "TIME", default_value = "8", allow_hyphen_values = true)]
    #[arg(value_parser = units::seconds)]
    pub(crate) seconds: Duration,
    /// Repair rate: for every R packets, each node sends repairs to C others
    #[arg(long, value_name = "R,C", default_value = "8,5", allow_hyphen_values = true)]
    #[arg(value_parser = units::rate_of_fire)]
    pub(crate) rate_of_fire: RateOfFire,
    /// Interleaved copies of each repair bin; more than one helps against bursts of losses
    #[arg(long, value_name = "I", default_value_t = 1, allow_hyphen_values = true)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) stagger: u8,
    /// Message size in bytes [default: 1024, or less if it does not fit]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, value_parser = units::bytes)]
    pub(crate) payload: Option<usize>,
    /// Seed of all random choices, such as the members of groups and the losses
    #[arg(long, value_name = "N", default_value_t = 1, allow_hyphen_values = true)]
    pub(crate) seed: u64,
    /// Network interface, by name or IPv4 address
    #[arg(long, value_name = "NAME|IP", default_value = "127.0.0.1")]
    pub(crate) interface: String,
    /// UDP port of the first node; the others use free ports [default: a free port]
    #[arg(long, value_name = "PORT", allow_hyphen_values = true)]
    pub(crate) port: Option<u16>,
    /// UDP port of all multicast traffic [default: a free port, to stay apart from other demos]
    #[arg(long, value_name = "PORT", allow_hyphen_values = true)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) multicast_port: Option<u16>,
    /// Delivery of packets to the other nodes
    #[arg(long, value_name = "PATH", default_value = "auto")]
    path: Path,
    /// Short for --path unicast
    #[arg(long, conflicts_with = "path")]
    unicast: bool,
    /// Print one JSON object at the end
    #[arg(long)]
    pub(crate) json: bool,
}

impl Args {
    pub(crate) fn path(&self) -> PathChoice {
        if self.unicast { PathChoice::Unicast } else { self.path.into() }
    }
}

const EXAMPLE: &str = "Examples:
  carom demo
  carom demo --nodes 16 --loss 20% --rate 100/s --seconds 5
  carom demo --burst 20 --stagger 4 --json | jq .recovered

Exit codes: 0 all messages were delivered, 1 messages were lost, duplicated, or damaged, 2 usage or
environment error";

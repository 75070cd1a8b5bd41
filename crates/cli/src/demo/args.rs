//! The flags of `carom demo`.

use std::time::Duration;

use carom::{PathChoice, RateOfFire};

use crate::node::Path;
use crate::units;

/// Watch losses being repaired: real nodes on real sockets of this machine, in one process
#[derive(clap::Args)]
#[command(after_help = EXAMPLE)]
pub(crate) struct Args {
    /// How many nodes
    #[arg(long, value_name = "N", default_value_t = 8, allow_hyphen_values = true)]
    #[arg(value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(2..=256))]
    pub(crate) nodes: usize,
    /// How many groups; each has members drawn at random
    #[arg(long, value_name = "N", default_value_t = 32, allow_hyphen_values = true)]
    #[arg(value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=4096))]
    pub(crate) groups: usize,
    /// Members of each group [default: 10, or one less than there are nodes, at least 2]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    #[arg(value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(2..=256))]
    pub(crate) group_size: Option<usize>,
    /// Share of the datagrams that each node drops on receipt
    #[arg(long, value_name = "SHARE", default_value = "1%", allow_hyphen_values = true)]
    #[arg(value_parser = units::share)]
    pub(crate) loss: f64,
    /// Let losses come in bursts of this many datagrams
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) burst: Option<u32>,
    /// Messages that each node sends, each in one of its groups at random
    #[arg(long, value_name = "RATE", default_value = "200/s", allow_hyphen_values = true)]
    #[arg(value_parser = units::rate)]
    pub(crate) rate: f64,
    /// How long to send
    #[arg(long, value_name = "TIME", default_value = "8", allow_hyphen_values = true)]
    #[arg(value_parser = units::seconds)]
    pub(crate) seconds: Duration,
    /// Repairs: of each R packets a node sends repairs to C others
    #[arg(long, value_name = "R,C", default_value = "8,5", allow_hyphen_values = true)]
    #[arg(value_parser = units::rate_of_fire)]
    pub(crate) rate_of_fire: RateOfFire,
    /// Interleaved copies of each repair bin, against bursts
    #[arg(long, value_name = "I", default_value_t = 1, allow_hyphen_values = true)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) stagger: u8,
    /// Bytes in a message [default: 1024, or what fits]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, value_parser = units::bytes)]
    pub(crate) payload: Option<usize>,
    /// Seed of all that is random: who is in which group, what is lost
    #[arg(long, value_name = "N", default_value_t = 1, allow_hyphen_values = true)]
    pub(crate) seed: u64,
    /// Network interface, by name or IPv4 address
    #[arg(long, value_name = "NAME|IP", default_value = "127.0.0.1")]
    pub(crate) interface: String,
    /// UDP port of the first node; the others have free ones [default: a free one]
    #[arg(long, value_name = "PORT", allow_hyphen_values = true)]
    pub(crate) port: Option<u16>,
    /// UDP port of all multicast [default: a free one, so that no other demo is disturbed]
    #[arg(long, value_name = "PORT", allow_hyphen_values = true)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) multicast_port: Option<u16>,
    /// How packets reach the other members
    #[arg(long, value_name = "PATH", default_value = "auto")]
    path: Path,
    /// The same as --path unicast
    #[arg(long, conflicts_with = "path")]
    unicast: bool,
    /// Print one object of JSON at the end
    #[arg(long)]
    pub(crate) json: bool,
}

impl Args {
    /// How packets are to reach the members.
    pub(crate) fn path(&self) -> PathChoice {
        if self.unicast { PathChoice::Unicast } else { self.path.into() }
    }
}

const EXAMPLE: &str = "Examples:
  carom demo
  carom demo --nodes 16 --loss 20% --rate 100/s --seconds 5
  carom demo --burst 20 --stagger 4 --json | jq .recovered

Exit codes: 0 all was delivered, 1 something was lost, 2 wrong use or environment";

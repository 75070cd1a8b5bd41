use std::ffi::OsString;
use std::time::Duration;

use carom_terminal::{output, units};

use crate::node::NodeArgs;
use crate::ring::RingArgs;

/// Run a command while holding a lock of an ordered group, like flock(1) on one machine
///
/// With --quorum-of N on all members, at most one member is granted the lock at a time. Without it,
/// this holds only among members that can reach each other: hosts that start separately, or are cut
/// off from each other, may each be granted the lock.
#[derive(clap::Args)]
#[command(after_help = EXAMPLE)]
pub(crate) struct Args {
    /// Group name
    #[arg(value_parser = units::name)]
    pub(crate) group: String,
    /// Lock name
    pub(super) name: String,
    /// Command and its arguments, after `--`
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(super) command: Vec<OsString>,
    /// Do not wait while another member holds the lock; wait at most 3 s for the ring
    #[arg(long = "try", conflicts_with = "timeout")]
    pub(super) does_not_wait: bool,
    /// Maximum wait for the ring and the lock together. A ring gets at least 3 s to form; a TIME
    /// below 3 s starts once it has formed [default: until Ctrl-C]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = units::duration)]
    pub(super) timeout: Option<Duration>,
    /// Exit code if the lock cannot be acquired
    #[arg(long, value_name = "CODE", default_value_t = 1, allow_hyphen_values = true)]
    pub(super) conflict_code: u8,
    /// Let the command continue after the lock is lost or in doubt
    #[arg(long)]
    pub(super) keep_running: bool,
    /// Time between SIGTERM and SIGKILL after the lock is lost
    #[arg(long, value_name = "TIME", default_value = "5s", allow_hyphen_values = true)]
    #[arg(value_parser = units::duration)]
    pub(super) kill_after: Duration,
    /// Request the lock only when N other members are online
    #[arg(long, value_name = "N", default_value_t = 0, allow_hyphen_values = true)]
    pub(super) wait_for: usize,
    /// Report members that join or leave the ring
    #[arg(long)]
    pub(super) verbose: bool,
    #[command(flatten)]
    pub(super) ring: RingArgs,
    #[command(flatten)]
    pub(super) node: NodeArgs,
}

impl Args {
    pub(super) fn say_not_had(&self, why: &str) {
        let Self { group, name, .. } = self;
        output::say(format_args!("could not acquire lock {name} of {group}: {why}"));
    }
}

const EXAMPLE: &str = "Examples:
  carom lock backup nightly -- ./backup.sh
  carom lock backup nightly --try -- ./backup.sh || echo skipped
  carom lock jobs leader --timeout 10s -- sh -c './write --fence $CAROM_FENCE'

The command receives CAROM_GROUP, CAROM_LOCK, and CAROM_FENCE in its environment. The fence is a
number that grows with each grant of the lock, for as long as the ring exists. A resource that the
command writes to should reject a fence smaller than the largest it has seen. If carom does not run
on a terminal, signals reach the command and all processes that it has started.

Exit codes: that of the command (128 + N if signal N ended it), --conflict-code if the lock could
not be acquired, 130 if interrupted while waiting for it, 2 usage or environment error";

//! The commands that change a running lab.

use std::time::Duration;

use carom_terminal::units::{self, UnitError};
use carom_terminal::{CliError, Outcome, output};
use serde::Serialize;

use super::control;
use super::loss_spec;
use super::request::{LEAST_RATE, LONGEST_OUTAGE, Request, SHORTEST_OUTAGE};
use super::state::State;

/// The options of every change.
#[derive(clap::Args)]
struct Common {
    /// Name of the lab, if several are running
    #[arg(long, value_name = "NAME")]
    lab: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Drop everything between two hosts of a running lab
///
/// The links stay up, and no error is reported to the senders. `carom-lab net heal` restores the
/// connection.
#[derive(clap::Args)]
#[command(after_help = CUT_EXAMPLE)]
pub(super) struct Cut {
    /// Host, such as h1
    #[arg(value_name = "HOST")]
    from: String,
    /// Another host
    #[arg(value_name = "HOST")]
    to: String,
    /// Drop only what the first host sends to the second
    #[arg(long)]
    one_way: bool,
    #[command(flatten)]
    common: Common,
}

/// Restore the connections that `carom-lab net cut` has cut
#[derive(clap::Args)]
#[command(after_help = HEAL_EXAMPLE)]
pub(super) struct Heal {
    /// Two hosts whose connection is restored in both directions [default: all connections]
    #[arg(num_args = 2, value_name = "HOST")]
    hosts: Vec<String>,
    #[command(flatten)]
    common: Common,
}

/// Replace the losses of a host of a running lab
///
/// The host loses UDP datagrams on receipt. The other hosts keep their losses.
#[derive(clap::Args)]
#[command(after_help = LOSS_EXAMPLE)]
pub(super) struct Loss {
    /// Host, such as h1
    #[arg(value_name = "HOST")]
    host: String,
    /// none, a share such as 1%, outages:LENGTH/PERIOD, or bursts:BAD/GOOD with mean times
    #[arg(value_name = "LOSS", value_parser = loss)]
    loss: String,
    #[command(flatten)]
    common: Common,
}

/// Replace the limits of the rates at which a host of a running lab sends and receives
#[derive(clap::Args)]
#[command(after_help = RATE_EXAMPLE)]
pub(super) struct Rate {
    /// Host, such as h1
    #[arg(value_name = "HOST")]
    host: String,
    /// Bits per second in each direction, at least 8000, or none
    #[arg(value_name = "BITS", value_parser = rate)]
    rate: Limit,
    #[command(flatten)]
    common: Common,
}

/// Drop all UDP datagrams to a host of a running lab for a time
///
/// Returns when the outage is over. Ctrl-C ends it early. The losses of the host
/// continue behind it.
#[derive(clap::Args)]
#[command(after_help = OUTAGE_EXAMPLE)]
pub(super) struct Outage {
    /// Host, such as h1
    #[arg(value_name = "HOST")]
    host: String,
    /// Duration in whole milliseconds, at most an hour, such as 20ms
    #[arg(value_name = "TIME", value_parser = outage_ms)]
    length_ms: u64,
    #[command(flatten)]
    common: Common,
}

impl Cut {
    pub(super) fn run(&self) -> Result<Outcome, CliError> {
        let Self { from, to, one_way, common } = self;
        if from == to {
            let cause = format!("{from} cannot be cut off from itself");
            return Err(CliError::new(cause, "use the names of two hosts"));
        }
        let arrow = if *one_way { "to" } else { "and" };
        let request = Request::Cut { from: from.clone(), to: to.clone(), one_way: *one_way };
        common.request(request, &format!("cut {from} {arrow} {to}"))
    }
}

impl Heal {
    pub(super) fn run(&self) -> Result<Outcome, CliError> {
        let report = match &self.hosts[..] {
            [] => "healed all connections".to_owned(),
            hosts => format!("healed {}", hosts.join(" and ")),
        };
        self.common.request(Request::Heal { hosts: self.hosts.clone() }, &report)
    }
}

impl Loss {
    pub(super) fn run(&self) -> Result<Outcome, CliError> {
        let Self { host, loss, common } = self;
        let request = Request::Loss { host: host.clone(), loss: loss.clone() };
        common.request(request, &format!("losses of {host}: {loss}"))
    }
}

impl Rate {
    pub(super) fn run(&self) -> Result<Outcome, CliError> {
        let Self { host, rate: Limit(bits), common } = self;
        let shown = bits.map_or("no limit".to_owned(), |bits| format!("{bits} bit/s"));
        let request = Request::Rate { host: host.clone(), bits_per_second: *bits };
        common.request(request, &format!("rate of {host}: {shown}"))
    }
}

impl Outage {
    pub(super) fn run(&self) -> Result<Outcome, CliError> {
        let Self { host, length_ms, common } = self;
        let request = Request::Outage { host: host.clone(), length_ms: *length_ms };
        common.request(request, &format!("{host} had an outage of {length_ms} ms"))
    }
}

impl Common {
    /// Requests the change, and prints it when it has taken effect.
    fn request(&self, request: Request, report: &str) -> Result<Outcome, CliError> {
        #[derive(Serialize)]
        struct Changed<'a> {
            lab: &'a str,
            #[serde(flatten)]
            request: &'a Request,
        }
        let state = State::find(self.lab.as_deref())?;
        request.hosts().iter().try_for_each(|name| state.host(name).map(drop))?;
        control::request(&state, &request)?;
        match self.json {
            true => output::json(&Changed { lab: &state.name, request: &request })?,
            false => output::lines(report)?,
        }
        Ok(Outcome::Fine)
    }
}

/// A limit in bits per second, or none.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Limit(Option<u64>);

fn loss(text: &str) -> Result<String, UnitError> {
    loss_spec::parse(text).map(|_| text.to_owned())
}

fn rate(text: &str) -> Result<Limit, UnitError> {
    match text.parse() {
        _ if text == "none" => Ok(Limit(None)),
        Ok(bits) if bits >= LEAST_RATE => Ok(Limit(Some(bits))),
        _ => Err(UnitError {
            cause: format!("rate '{text}' is invalid"),
            fix: format!("use none, or a number of bits per second of at least {LEAST_RATE}"),
        }),
    }
}

fn outage_ms(text: &str) -> Result<u64, UnitError> {
    let length = units::duration(text)?;
    match u64::try_from(length.as_millis()) {
        Ok(ms)
            if (SHORTEST_OUTAGE..=LONGEST_OUTAGE).contains(&length)
                && length == Duration::from_millis(ms) =>
        {
            Ok(ms)
        }
        _ => Err(UnitError {
            cause: format!("outage '{text}' is invalid"),
            fix: "use whole milliseconds from 1ms to 60min".to_owned(),
        }),
    }
}

const CUT_EXAMPLE: &str = "Examples:
  carom-lab net cut h1 h2
  carom-lab net cut h1 h2 --one-way     h2 does not hear h1, and h1 hears h2";
const HEAL_EXAMPLE: &str = "Examples:
  carom-lab net heal
  carom-lab net heal h1 h2";
const LOSS_EXAMPLE: &str = "Examples:
  carom-lab net loss h2 1%
  carom-lab net loss h2 bursts:10ms/990ms
  carom-lab net loss h2 none";
const RATE_EXAMPLE: &str = "Examples:
  carom-lab net rate h2 10000000
  carom-lab net rate h2 none";
const OUTAGE_EXAMPLE: &str = "Example:
  carom-lab net outage h2 20ms";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_none_or_whole_numbers_of_bits() {
        assert_eq!(rate("none"), Ok(Limit(None)));
        assert_eq!(rate("8000"), Ok(Limit(Some(8000))));
        for text in ["", "7999", "-1", "1e6", "10Mbit"] {
            assert!(rate(text).is_err(), "{text}");
        }
    }

    #[test]
    fn outages_last_from_a_millisecond_to_an_hour() {
        assert_eq!(outage_ms("20ms"), Ok(20));
        assert_eq!(outage_ms("60min"), Ok(3_600_000));
        for text in ["0ms", "0.2ms", "1.9ms", "61min", "20"] {
            assert!(outage_ms(text).is_err(), "{text}");
        }
    }
}

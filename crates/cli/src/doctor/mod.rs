mod finding;
mod local;
mod packet;
mod pair;
mod probe;

use carom_terminal::{CliError, Outcome, interrupt};
use finding::Findings;

/// Check this machine, or the path to another one
#[derive(clap::Args)]
#[command(after_help = EXAMPLE)]
pub(crate) struct Args {
    /// Other machine, on which `carom doctor --listen` runs
    #[arg(value_name = "HOST[:PORT]", conflicts_with = "listen")]
    host: Option<String>,
    /// Answer `carom doctor HOST` from other machines, until Ctrl-C
    #[arg(long)]
    listen: bool,
    /// UDP port of --listen [default: 7499]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    #[arg(requires = "listen")]
    port: Option<u16>,
    /// Check only this network interface, by name or IPv4 address
    #[arg(long, value_name = "NAME|IP")]
    interface: Option<String>,
    /// Print JSON: one object, or with --listen one per kind of arrival
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<Outcome, CliError> {
    let interrupt = interrupt::listen()?;
    let interface = args.interface.as_deref();
    if args.listen {
        let port = args.port.unwrap_or(DEFAULT_PORT);
        return pair::listen(port, interface, args.json, interrupt).map(|()| Outcome::Fine);
    }
    let findings: Findings = match &args.host {
        Some(host) => pair::examine(host, DEFAULT_PORT, interface, interrupt)?,
        None => local::examine(interface)?,
    };
    findings.show(args.json)?;
    Ok(Outcome::of(findings.will_hurt()))
}

const DEFAULT_PORT: u16 = 7499;
const EXAMPLE: &str = "Examples:
  carom doctor
  carom doctor --listen                       on one machine
  carom doctor 10.0.0.1                       on another one

Exit codes: 0 no problem, or only warnings, 1 a problem was found, 2 usage or environment error";

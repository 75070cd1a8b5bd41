//! Figure 15 of the RDCM paper on real sockets: a link and a receiver of a BCube(4,1) fail.

mod fabric;
mod rates;
mod report;
mod session;

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use carom_netns::{Isolation, isolate};
use carom_proto::rdcm::topology::Topology;
use carom_terminal::units::{self, Bandwidth};
use carom_terminal::{CliError, Outcome, output};

use self::fabric::{Fabric, RECEIVERS, SENDER};
use self::rates::{Bin, Count, Octets};
use self::report::Report;
use self::session::{Programs, Session, TreeFile, io_error};
use super::refusal::refused;

/// Measure the faults of the RDCM paper's figure 15 on real sockets
///
/// 16 servers with two interfaces and 8 switches are network namespaces. `carom send` sends to nine
/// receivers along a tree that the registry installs. 5 s later a link of the tree fails, which the
/// receivers detect, and 10 s later a receiver is killed. Writes figure-15.csv, figure-15.svg and
/// figure-15.txt. The exit code is 1 if a living receiver gets less than 90 % of the sending rate
/// in an interval of 100 ms, after the first 100 ms of the fault, or if the tree is not rebuilt.
/// Needs ip, bridge, jq and flock.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Sending rate, such as 500Mbit in the paper; two cores that also run other programs carry 40
    #[arg(long, default_value = "40Mbit", value_name = "BANDWIDTH")]
    #[arg(value_parser = units::bandwidth)]
    rate: Bandwidth,
    /// Program `carom`
    #[arg(long, default_value = "carom", value_name = "PATH")]
    carom: PathBuf,
    /// Command that installs trees in bridges
    #[arg(long, default_value = "packaging/install-tree-in-bridges", value_name = "PATH")]
    on_tree: PathBuf,
    /// Directory for the results
    #[arg(long, default_value = "figure-15", value_name = "DIR")]
    out: PathBuf,
}

const EVERY: Duration = Duration::from_millis(100);
const LINK_FAILS_AT: Duration = Duration::from_secs(5);
const RECEIVER_FAILS_AT: Duration = Duration::from_secs(10);
const END_AT: Duration = Duration::from_secs(15);
/// Time for which the stream is sent before and after the measurement.
const MARGIN: Duration = Duration::from_secs(20);

pub(super) fn run(args: &Args) -> Result<Outcome, CliError> {
    let Bandwidth::BytesPerSecond(rate) = args.rate else {
        return Err(CliError::new(
            "--rate auto is invalid: the experiment has a fixed rate",
            "use a bandwidth such as 40Mbit",
        ));
    };
    let programs = Programs::find(&args.carom, &args.on_tree)?;
    match isolate().map_err(|error| refused(&error))? {
        Isolation::Ended(code) => return Ok(Outcome::Code(code)),
        Isolation::Inside(_) => {}
    }
    let files = args.out.join("files");
    fs::create_dir_all(&files).map_err(|error| io_error(&files, &error))?;
    let topology = Topology::bcube(4, 1).expect("a BCube of 16 servers");
    let fabric = Fabric::build(topology).map_err(|error| refused(&error))?;
    let bytes = rate * (END_AT + MARGIN).as_secs();
    let session = Session::start(&fabric, &programs, &files, (rate, bytes))?;
    let report = measure(&fabric, session, rate)?;
    for (name, text) in report.files() {
        let path = args.out.join(name);
        fs::write(&path, text).map_err(|error| io_error(&path, &error))?;
    }
    fs::remove_dir_all(&files).map_err(|error| io_error(&files, &error))?;
    output::lines(&report.text())?;
    Ok(if report.holds() { Outcome::Fine } else { Outcome::Finding })
}

/// Runs the experiment, and returns its results.
fn measure(fabric: &Fabric, mut session: Session, rate: u64) -> Result<Report, CliError> {
    let counters = counters(fabric)?;
    session.await_stream(&counters[0], rate)?;
    let link = session.await_tree(fabric)?.busiest_link();
    let (link, below) = link.ok_or_else(|| {
        CliError::new("no link of the tree leads to some receivers only", "report this as a bug")
    })?;
    let dead = fabric.topology().neighbours(link[0]).iter().find(|(to, _)| *to == link[1]);
    // The paper does not move unicast. Here, its path may otherwise include the link, and only
    // multicast is examined: source routing avoids a dead link by itself.
    fabric.route(dead.map(|(_, link)| *link)).map_err(|error| refused(&error))?;
    let affected = RECEIVERS.iter().position(|it| below.contains(it)).expect("one is below");
    let killed = RECEIVERS.iter().position(|it| !below.contains(it)).expect("one is elsewhere");

    let begun = Instant::now();
    let mut samples: Vec<(f64, Vec<Count>)> = vec![(0.0, read(&counters)?)];
    let (mut is_cut, mut is_killed, mut rebuilt) = (None, None, None);
    while begun.elapsed() < END_AT {
        let next = EVERY * samples.len() as u32;
        std::thread::sleep(next.saturating_sub(begun.elapsed()));
        samples.push((begun.elapsed().as_secs_f64(), read(&counters)?));
        if is_cut.is_none() && next >= LINK_FAILS_AT {
            fabric.cut(link).map_err(|error| refused(&error))?;
            is_cut = Some(begun.elapsed().as_secs_f64());
        }
        if is_killed.is_none() && next >= RECEIVER_FAILS_AT {
            is_killed = Some(begun.elapsed().as_secs_f64());
            session.kill(killed)?;
        }
        if is_cut.is_some() && rebuilt.is_none() {
            let tree = TreeFile::read(&session.trees, fabric).filter(|it| !it.contains(link));
            rebuilt = tree.map(|_| begun.elapsed().as_secs_f64());
        }
    }
    session.finish(killed)?;
    let bins = samples.windows(2).map(|pair| Bin::between(&pair[0], &pair[1])).collect();
    Ok(Report {
        rate: rate as f64 * 8.0 / 1e6,
        names: RECEIVERS.map(|it| fabric.topology().name(it).to_owned()).to_vec(),
        link: link.map(|it| fabric.topology().name(it).to_owned()),
        affected,
        killed: (killed, is_killed.unwrap_or(f64::MAX)),
        cut_at: is_cut.unwrap_or(f64::MAX),
        rebuilt_at: rebuilt,
        bins,
    })
}

fn counters(fabric: &Fabric) -> Result<Vec<Octets>, CliError> {
    let all = std::iter::once(SENDER).chain(RECEIVERS);
    let opened = all.map(|vertex| {
        let opened = Octets::open(fabric.node(vertex)).map_err(|error| refused(&error))?;
        opened.map_err(|error| io_error("/proc/net/netstat".as_ref(), &error))
    });
    opened.collect()
}

fn read(counters: &[Octets]) -> Result<Vec<Count>, CliError> {
    let counts = counters.iter().map(Octets::read).collect::<Result<Vec<_>, _>>();
    counts.map_err(|error| io_error("/proc/net/netstat".as_ref(), &error))
}

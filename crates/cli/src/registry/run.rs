use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use carom_registry::{EtcdOptions, Options, Registry, StoreOptions, TreeCommand};
use carom_terminal::{CliError, Outcome, interrupt, output, units};
use serde::Serialize;

use super::address::default_http;
use super::limits::{check_detection, check_name};
use crate::waiting;

#[derive(clap::Args)]
pub(super) struct Serve {
    /// Directory of the store (created if missing); acknowledged changes are on disk
    #[arg(long, value_name = "DIR", default_value = "carom-registry", conflicts_with = "etcd")]
    store: PathBuf,
    /// Start with an empty store if the existing one is lost or damaged; a damaged store is moved
    /// aside
    #[arg(long, conflicts_with = "etcd")]
    new_store: bool,
    #[command(flatten)]
    etcd: Etcd,
    /// TCP address to which nodes connect
    #[arg(long, value_name = "ADDR:PORT", default_value_t = Options::new("").listen)]
    listen: SocketAddr,
    /// Address given to the nodes, if it differs from the listening address
    #[arg(long, value_name = "ADDR:PORT")]
    advertise: Option<SocketAddr>,
    /// HTTP address of status and metrics
    #[arg(long, value_name = "ADDR:PORT", default_value_t = default_http())]
    http: SocketAddr,
    /// Serve no status and no metrics
    #[arg(long, conflicts_with = "http")]
    no_http: bool,
    /// Name of the cluster; nodes of another cluster are rejected
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    cluster: String,
    /// Number of partitions into which the groups are divided; fixed when the store is created
    #[arg(long, value_name = "N", default_value_t = 16)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=4096))]
    partitions: u16,
    /// Declare a node dead after this time of silence
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = units::duration)]
    detection: Duration,
    /// Number of random members in the view of each node [default: all]
    #[arg(long, value_name = "N")]
    view_size: Option<NonZeroUsize>,
    /// Let each node ping the next one, in a ring
    #[arg(long)]
    ring: bool,
    /// With --ring: report a node that answers no ping for this time [default: --detection]
    #[arg(long, value_name = "TIME", value_parser = units::duration, requires = "ring")]
    ring_time: Option<Duration>,
    /// TOML description of the network, in which this service places the receivers of bulk groups
    #[arg(long, value_name = "FILE")]
    topology: Option<PathBuf>,
    /// Shell command that installs a multicast tree in the network; it gets the tree as JSON on its
    /// standard input
    #[arg(long, value_name = "COMMAND", requires = "topology")]
    on_tree: Option<String>,
    /// Kill the command of --on-tree after this time
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = units::duration)]
    #[arg(requires = "on_tree")]
    on_tree_timeout: Duration,
    /// Accept `carom registry link` from all hosts that reach the HTTP address
    #[arg(long, conflicts_with = "no_http")]
    remote_link_reports: bool,
    /// Print one JSON object when the service is listening
    #[arg(long)]
    json: bool,
}

/// `true` if this program was built without etcd. The flags of etcd are then parsed and rejected.
const NO_ETCD: bool = cfg!(not(feature = "etcd"));

#[derive(clap::Args)]
struct Etcd {
    /// Keep the state in etcd, which several processes share: client URLs of etcd, separated by
    /// commas
    #[arg(long, hide = NO_ETCD, value_name = "URL,...", value_delimiter = ',')]
    etcd: Vec<String>,
    /// Time without contact to etcd after which other processes take over the partitions of this
    /// one
    #[arg(long, hide = NO_ETCD, value_name = "TIME", default_value = "5s")]
    #[arg(value_parser = units::duration)]
    #[arg(requires = "etcd")]
    etcd_lease: Duration,
    /// User name for etcd
    #[arg(long, hide = NO_ETCD, value_name = "NAME")]
    #[arg(requires = "etcd", requires = "etcd_password_file")]
    etcd_user: Option<String>,
    /// File with the password on its first line
    #[arg(long, hide = NO_ETCD, value_name = "FILE", requires = "etcd_user")]
    etcd_password_file: Option<PathBuf>,
    /// CA certificate (PEM) for the etcd servers; requires https
    #[arg(long, hide = NO_ETCD, value_name = "FILE", requires = "etcd")]
    etcd_ca: Option<PathBuf>,
    /// Own certificate (PEM), if etcd requires one
    #[arg(long, hide = NO_ETCD, value_name = "FILE", requires = "etcd_ca", requires = "etcd_key")]
    etcd_cert: Option<PathBuf>,
    /// Key of --etcd-cert (PEM)
    #[arg(long, hide = NO_ETCD, value_name = "FILE", requires = "etcd_cert")]
    etcd_key: Option<PathBuf>,
}

#[derive(Serialize)]
struct Serving {
    address: String,
    http: Option<String>,
    store: String,
}

pub(super) fn run(args: &Serve) -> Result<Outcome, CliError> {
    check_detection("--detection", args.detection)?;
    args.ring_time.map_or(Ok(()), |time| check_detection("--ring-time", time))?;
    check_name("--cluster", &args.cluster)?;
    let interrupt = interrupt::listen_with(END_WITHIN)?;
    let options = args.options()?;
    let started = waiting::done(move || Registry::start(options), || interrupt.is_asked());
    let registry = started
        .ok_or_else(CliError::interrupted)?
        .map_err(|error| CliError::new(error.to_string(), error.fix()))?;
    let serving = Serving {
        address: registry.address().to_string(),
        http: registry.http().map(|http| http.to_string()),
        store: args.place(),
    };
    if args.json {
        output::json(&serving)?;
    } else {
        output::say(format_args!(
            "serving at {}: start nodes with --registry {0}",
            serving.address
        ));
        if let Some(http) = &serving.http {
            output::say(format_args!(
                "status and metrics at http://{http}/status and http://{http}/metrics"
            ));
        }
        output::say(format_args!(
            "acknowledged changes are kept in {}; press Ctrl-C to stop",
            serving.store
        ));
    }
    let mut told = None;
    while !interrupt.wait(LOOK_EVERY) && !registry.has_ended() {
        let trouble = registry.trouble();
        if told != trouble {
            match &trouble {
                Some(trouble) => output::say(format_args!("store unavailable: {trouble}")),
                None => output::say(format_args!("store available again")),
            }
            told = trouble;
        }
    }
    registry.stop().map_err(|error| CliError::new(error.to_string(), error.fix()))?;
    Ok(Outcome::Fine)
}

impl Serve {
    fn options(&self) -> Result<Options, CliError> {
        let mut options = Options::new(&self.store);
        if !self.etcd.etcd.is_empty() {
            options.store = StoreOptions::Etcd(self.etcd.options()?);
        }
        options.new_store = self.new_store;
        options.listen = self.listen;
        options.advertise = self.advertise;
        options.http = (!self.no_http).then_some(self.http);
        options.server.cluster.clone_from(&self.cluster);
        options.server.partitions = self.partitions;
        options.server.detection_time = self.detection;
        options.server.view_size = self.view_size;
        options.server.ring = self.ring;
        options.server.ring_time = self.ring_time;
        options.remote_link_reports = self.remote_link_reports;
        options.on_tree = self.on_tree.as_ref().map(|command| TreeCommand {
            timeout: self.on_tree_timeout,
            ..TreeCommand::new(command)
        });
        options.server.network = match &self.topology {
            Some(path) => Some(crate::transfer::topology::read(path)?),
            None => None,
        };
        Ok(options)
    }

    fn place(&self) -> String {
        match self.etcd.etcd.is_empty() {
            true => self.store.display().to_string(),
            false => self.etcd.etcd.join(","),
        }
    }
}

impl Etcd {
    fn options(&self) -> Result<EtcdOptions, CliError> {
        let mut options = EtcdOptions::new(&self.etcd);
        let is_whole = self.etcd_lease.subsec_nanos() == 0;
        if !is_whole || !(LEAST_LEASE..=LONGEST_LEASE).contains(&self.etcd_lease) {
            let cause = format!(
                "--etcd-lease: {:?} is invalid: expected whole seconds from 2s to 10min",
                self.etcd_lease
            );
            return Err(CliError::new(cause, "use whole seconds, such as 5s"));
        }
        options.lease = self.etcd_lease;
        if let (Some(name), Some(file)) = (&self.etcd_user, &self.etcd_password_file) {
            let text = std::fs::read_to_string(file)
                .map_err(|error| CliError::file(&file.display().to_string(), &error))?;
            let password = text.lines().next().unwrap_or_default();
            options.user = Some((name.clone(), password.to_owned()));
        }
        let plain = self.etcd.iter().find(|url| !url.starts_with("https://"));
        if let (Some(plain), true) = (plain, self.etcd_ca.is_some()) {
            let cause = format!("--etcd-ca requires https URLs, but --etcd has {plain}");
            return Err(CliError::new(cause, "use https://HOST:PORT for every etcd member"));
        }
        options.ca.clone_from(&self.etcd_ca);
        options.identity = self.etcd_cert.clone().zip(self.etcd_key.clone());
        Ok(options)
    }
}

const LEAST_LEASE: Duration = Duration::from_secs(2);
const LONGEST_LEASE: Duration = Duration::from_secs(600);

/// Grace period after Ctrl-C. The service waits up to 4.5 s for a store that does not answer.
const END_WITHIN: Duration = Duration::from_secs(6);
const LOOK_EVERY: Duration = Duration::from_millis(500);

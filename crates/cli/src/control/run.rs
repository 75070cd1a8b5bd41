//! Running the membership service until it is told to end.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use carom_control::{Control, EtcdOptions, Options, StoreOptions};
use carom_paper::units;
use serde::Serialize;

use super::{check_detection, check_name, default_http, default_listen};
use crate::error::{CliError, Outcome};
use crate::interrupt;
use crate::{output, waiting};

/// What a service is started with.
#[derive(clap::Args)]
pub(super) struct Serve {
    /// Folder of the store, made if it is not there; what was acknowledged is on the disk
    #[arg(long, value_name = "DIR", default_value = "carom-control", conflicts_with = "etcd")]
    store: PathBuf,
    /// Begin an empty store if the one that was there is lost or damaged, which is put aside
    #[arg(long, conflicts_with = "etcd")]
    new_store: bool,
    #[command(flatten)]
    etcd: Etcd,
    /// Where nodes connect to, by TCP
    #[arg(long, value_name = "ADDR:PORT", default_value_t = default_listen())]
    listen: SocketAddr,
    /// The address that nodes are told, if it is not the one listened at
    #[arg(long, value_name = "ADDR:PORT")]
    advertise: Option<SocketAddr>,
    /// Where status and metrics are served by HTTP
    #[arg(long, value_name = "ADDR:PORT", default_value_t = default_http())]
    http: SocketAddr,
    /// Serve no status and no metrics
    #[arg(long, conflicts_with = "http")]
    no_http: bool,
    /// Name of the cluster: nodes of another one are refused
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    cluster: String,
    /// Into how many partitions the groups are split; a store keeps to those it was made with
    #[arg(long, value_name = "N", default_value_t = 16)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=4096))]
    partitions: u16,
    /// A node that is silent for so long is taken for dead
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = units::duration)]
    detection: Duration,
    /// How many random members of a group a node is shown [default: all]
    #[arg(long, value_name = "N")]
    view_size: Option<NonZeroUsize>,
    /// Have each node ping the next one, in a ring
    #[arg(long)]
    ring: bool,
    /// With --ring: a node that answers no ping for so long is reported [default: as --detection]
    #[arg(long, value_name = "TIME", value_parser = units::duration, requires = "ring")]
    ring_time: Option<Duration>,
    /// File in TOML that says what the network is like: this service places the receivers of bulk
    /// groups in it
    #[arg(long, value_name = "FILE")]
    topology: Option<PathBuf>,
    /// Print one object of JSON once it listens
    #[arg(long)]
    json: bool,
}

/// Whether this program was built without etcd: its flags are understood and refused then.
const NO_ETCD: bool = cfg!(not(feature = "etcd"));

/// Which etcd keeps the state, if one does.
#[derive(clap::Args)]
struct Etcd {
    /// Keep the state in etcd, which several processes share: its client addresses
    #[arg(long, hide = NO_ETCD, value_name = "URL,...", value_delimiter = ',')]
    etcd: Vec<String>,
    /// How long this process may be away from etcd until others take its partitions
    #[arg(long, hide = NO_ETCD, value_name = "TIME", default_value = "5s")]
    #[arg(value_parser = units::duration)]
    #[arg(requires = "etcd")]
    etcd_lease: Duration,
    /// Name of the user at etcd
    #[arg(long, hide = NO_ETCD, value_name = "NAME")]
    #[arg(requires = "etcd", requires = "etcd_password_file")]
    etcd_user: Option<String>,
    /// File with the password, on its first line
    #[arg(long, hide = NO_ETCD, value_name = "FILE", requires = "etcd_user")]
    etcd_password_file: Option<PathBuf>,
    /// Certificate of who signed etcd's, in PEM: for https
    #[arg(long, hide = NO_ETCD, value_name = "FILE", requires = "etcd")]
    etcd_ca: Option<PathBuf>,
    /// Own certificate, in PEM, where etcd asks for one
    #[arg(long, hide = NO_ETCD, value_name = "FILE", requires = "etcd_ca", requires = "etcd_key")]
    etcd_cert: Option<PathBuf>,
    /// The key of --etcd-cert, in PEM
    #[arg(long, hide = NO_ETCD, value_name = "FILE", requires = "etcd_cert")]
    etcd_key: Option<PathBuf>,
}

/// Where it serves.
#[derive(Serialize)]
struct Serving {
    address: String,
    http: Option<String>,
    store: String,
}

/// Serves until Ctrl-C.
///
/// # Errors
/// If it cannot start, or fails.
pub(super) fn run(args: &Serve) -> Result<Outcome, CliError> {
    check_detection("--detection", args.detection)?;
    args.ring_time.map_or(Ok(()), |time| check_detection("--ring-time", time))?;
    check_name("--cluster", &args.cluster)?;
    let interrupt = interrupt::listen_with(END_WITHIN)?;
    let options = args.options()?;
    let started = waiting::done(move || Control::start(options), || interrupt.is_asked());
    let control = started
        .ok_or_else(CliError::interrupted)?
        .map_err(|error| CliError::new(error.to_string(), error.fix()))?;
    let serving = Serving {
        address: control.address().to_string(),
        http: control.http().map(|http| http.to_string()),
        store: args.place(),
    };
    if args.json {
        output::json(&serving)?;
    } else {
        output::say(format_args!("serves at {}: nodes give --control {0}", serving.address));
        if let Some(http) = &serving.http {
            output::say(format_args!(
                "status and metrics at http://{http}/status and http://{http}/metrics"
            ));
        }
        output::say(format_args!(
            "ends with Ctrl-C; what was acknowledged is kept in {}",
            serving.store
        ));
    }
    let mut told = None;
    while !interrupt.wait(LOOK_EVERY) && !control.has_ended() {
        let trouble = control.trouble();
        if told != trouble {
            match &trouble {
                Some(trouble) => output::say(format_args!("away from its store: {trouble}")),
                None => output::say(format_args!("its store is back")),
            }
            told = trouble;
        }
    }
    control.stop().map_err(|error| CliError::new(error.to_string(), error.fix()))?;
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
        options.server.network = match &self.topology {
            Some(path) => Some(crate::transfer::topology::read(path)?),
            None => None,
        };
        Ok(options)
    }

    /// Where the state is kept.
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
            let cause = format!("--etcd-lease: {:?} is not possible", self.etcd_lease);
            return Err(CliError::new(cause, "give 2s to 10min, in whole seconds"));
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
            let cause = format!("--etcd-ca: {plain} is not spoken to by TLS");
            return Err(CliError::new(cause, "give https://HOST:PORT for every member of etcd"));
        }
        options.ca.clone_from(&self.etcd_ca);
        options.identity = self.etcd_cert.clone().zip(self.etcd_key.clone());
        Ok(options)
    }
}

const LEAST_LEASE: Duration = Duration::from_secs(2);
const LONGEST_LEASE: Duration = Duration::from_secs(600);

/// How long the end may take: a store that does not answer is waited for until 4.5 s.
const END_WITHIN: Duration = Duration::from_secs(6);
const LOOK_EVERY: Duration = Duration::from_millis(500);

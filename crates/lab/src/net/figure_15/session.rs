use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use carom_bench::Magic;
use carom_bench::record::NodeFiles;
use carom_netns::Process;
use carom_proto::rdcm::topology::{Topology, Vertex};
use carom_terminal::{CliError, plain};

use super::fabric::{self, Fabric, RECEIVERS, SENDER};
use super::rates::{Deliveries, Octets};
use crate::net::refusal::refused;
use crate::nodes::{Nodes, end_until};

/// Programs that the experiment starts.
pub(super) struct Programs {
    carom: PathBuf,
    on_tree: PathBuf,
    /// This program, which is also the sender and the receivers.
    own: PathBuf,
}

/// Processes of the registry, the sender and the receivers. The registry is on the sender's server.
pub(super) struct Session {
    /// State of the command that installs trees.
    pub(super) trees: PathBuf,
    /// The sender, then the receivers.
    nodes: Nodes,
    registry: Process,
    files: PathBuf,
}

/// Links of the installed tree, from the sender to the receivers.
pub(super) struct TreeFile(BTreeSet<[Vertex; 2]>);

impl Programs {
    pub(super) fn find(carom: &Path, on_tree: &Path) -> Result<Self, CliError> {
        let real = |path: &Path, flag: &str| {
            fs::canonicalize(path).map_err(|error| {
                let cause = format!("{} is not readable: {}", path.display(), plain(&error));
                CliError::new(cause, format!("use {flag} with the path of the program"))
            })
        };
        let own = std::env::current_exe().map_err(|error| {
            let cause = format!("the path of this program is unknown: {}", plain(&error));
            CliError::new(cause, "check that /proc is mounted")
        })?;
        Ok(Self { carom: real(carom, "--carom")?, on_tree: real(on_tree, "--on-tree")?, own })
    }
}

impl Session {
    /// Starts to send at a rate in bytes per second.
    pub(super) fn start(
        fabric: &Fabric,
        programs: &Programs,
        files: &Path,
        rate: u64,
    ) -> Result<Self, CliError> {
        let files = fs::canonicalize(files).map_err(|error| io_error(files, &error))?;
        let path = |name: &str| files.join(name).display().to_string();
        let (network, settings) = (path("network.toml"), path("settings.toml"));
        write_files(fabric.topology(), &network, &settings)
            .map_err(|error| io_error(&files, &error))?;
        let trees = files.join("trees");
        let (store, hook) = (path("store"), programs.on_tree.display().to_string());
        let args = ["registry", "--store", &store, "--topology", &network, "--on-tree", &hook];
        let program = programs.carom.display().to_string();
        let mut command = fabric.node(SENDER).command(&program, &args);
        command.env("CAROM_TREE_STATE", &trees);
        let registry = started(command, &files.join("registry.log"))?;
        let mut nodes = Nodes::new();
        for (index, vertex) in std::iter::once(SENDER).chain(RECEIVERS).enumerate() {
            let folder = folder_of(&files, index);
            fs::create_dir_all(&folder).map_err(|error| io_error(&folder, &error))?;
            let args = node_args(vertex, index, rate, &folder, &settings);
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            let command = fabric.node(vertex).command(&programs.own.display().to_string(), &args);
            nodes.start(command, &folder.join("log")).map_err(|error| failed(error, &files))?;
        }
        let mut session = Self { trees, nodes, registry, files };
        session.wait("a node is not ready", |session| {
            session.nodes.have_printed("ready", |_| true).then_some(())
        })?;
        session.nodes.write("go");
        Ok(session)
    }

    /// Waits until a tree to all receivers is installed.
    pub(super) fn await_tree(&mut self, fabric: &Fabric) -> Result<TreeFile, CliError> {
        self.wait("no tree is installed", |session| {
            TreeFile::read(&session.trees, fabric).filter(TreeFile::reaches_all)
        })
    }

    /// Waits until the stream has the rate.
    pub(super) fn await_stream(&mut self, sender: &Octets, rate: u64) -> Result<(), CliError> {
        let mut before = (Instant::now(), None);
        self.wait("the sender does not reach the rate", |_| {
            let seconds = before.0.elapsed().as_secs_f64();
            if seconds < 0.5 {
                return None;
            }
            let count = sender.read().ok()?.multicast;
            let last = std::mem::replace(&mut before, (Instant::now(), Some(count))).1?;
            ((count - last) as f64 >= rate as f64 * seconds * 0.8).then_some(())
        })
    }

    fn wait<T>(
        &mut self,
        problem: &str,
        mut found: impl FnMut(&mut Self) -> Option<T>,
    ) -> Result<T, CliError> {
        let give_up = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = found(self) {
                return Ok(found);
            }
            if Instant::now() > give_up {
                return Err(failed(problem, &self.files));
            }
            let polled = self.nodes.poll(Duration::from_millis(20));
            polled.map_err(|error| failed(error, &self.files))?;
        }
    }

    /// Kills a receiver.
    pub(super) fn kill(&mut self, receiver: usize) -> Result<(), CliError> {
        self.nodes.kill(receiver + 1).map_err(|error| failed(error, &self.files))
    }

    /// Stops all processes, and returns the deliveries of the receivers except those of `killed`.
    pub(super) fn finish(mut self, killed: usize) -> Result<Vec<Option<Deliveries>>, CliError> {
        self.nodes.stop(PATIENCE).map_err(|error| failed(error, &self.files))?;
        self.registry.interrupt().map_err(|error| refused(&error))?;
        match end_until(&mut self.registry, Instant::now() + PATIENCE) {
            Some(status) if status.success() => {}
            Some(status) => {
                return Err(failed(format!("the registry failed: {status}"), &self.files));
            }
            None => return Err(failed("the registry did not end", &self.files)),
        }
        let deliveries = (0..RECEIVERS.len()).map(|receiver| {
            if receiver == killed {
                return Ok(None);
            }
            let files = NodeFiles::read(&folder_of(&self.files, receiver + 1));
            let delivered = files.map_err(|error| failed(error, &self.files))?.delivered;
            let numbers: BTreeSet<u32> = delivered.iter().map(|it| it.number).collect();
            let sent = numbers.last().map_or(0, |last| u64::from(*last) + 1);
            let times = delivered.iter().map(|it| it.at_ns).collect();
            Ok(Some(Deliveries { times, lost: sent - numbers.len() as u64 }))
        });
        deliveries.collect()
    }
}

impl TreeFile {
    /// Reads the only tree, or returns `None` if there is none.
    pub(super) fn read(trees: &Path, fabric: &Fabric) -> Option<Self> {
        let address = fs::read_dir(trees).ok()?.next()?.ok()?.path();
        let mut files = fs::read_dir(address).ok()?.filter_map(Result::ok).map(|it| it.path());
        let is_hidden = |path: &PathBuf| {
            path.file_name().is_none_or(|name| name.to_string_lossy().starts_with('.'))
        };
        let file = files.find(|path| !is_hidden(path))?;
        let text = fs::read_to_string(file).ok()?;
        let links = text.lines().filter_map(|line| {
            let (from, to) = line.split_once(' ')?;
            Some([fabric.vertex(from)?, fabric.vertex(to)?])
        });
        Some(Self(links.collect()))
    }

    fn reaches_all(&self) -> bool {
        RECEIVERS.iter().all(|receiver| self.0.iter().any(|[_, to]| to == receiver))
    }

    /// Returns the link that leads to most receivers, but to fewer than all others together and not
    /// from the sender, with these receivers.
    pub(super) fn busiest_link(&self) -> Option<([Vertex; 2], Vec<Vertex>)> {
        let links = self.0.iter().filter(|[from, _]| *from != SENDER);
        let below = links.map(|link| (*link, self.receivers_below(link[1])));
        let some = below.filter(|(_, below)| (1..=RECEIVERS.len() / 2).contains(&below.len()));
        some.max_by_key(|(_, below)| below.len())
    }

    fn receivers_below(&self, top: Vertex) -> Vec<Vertex> {
        let mut below = vec![top];
        let mut place = 0;
        while place < below.len() {
            let vertex = below[place];
            below.extend(self.0.iter().filter(|[from, _]| *from == vertex).map(|[_, to]| *to));
            place += 1;
        }
        below.retain(|vertex| RECEIVERS.contains(vertex));
        below
    }
}

/// Returns the arguments of a node: the sender is node 0.
fn node_args(
    vertex: Vertex,
    index: usize,
    rate: u64,
    folder: &Path,
    settings: &str,
) -> Vec<String> {
    let role = if index == 0 { "sender" } else { "receiver" };
    let per_second = rate as f64 / MESSAGE_BYTES as f64;
    let pairs = [
        ("--system", "carom".to_owned()),
        ("--role", role.to_owned()),
        ("--index", index.to_string()),
        ("--nodes", (RECEIVERS.len() + 1).to_string()),
        ("--address", fabric::address(vertex).to_string()),
        ("--groups", "1".to_owned()),
        ("--messages", ((per_second * LONGEST.as_secs_f64()) as u32).to_string()),
        ("--rate", per_second.to_string()),
        ("--size", MESSAGE_BYTES.to_string()),
        ("--magic", Magic(*b"figure15").to_string()),
        ("--dir", folder.display().to_string()),
        ("--settings", settings.to_owned()),
    ];
    let words = pairs.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
    ["bench", "node"].map(str::to_owned).into_iter().chain(words).collect()
}

fn folder_of(files: &Path, index: usize) -> PathBuf {
    files.join(format!("node-{index}"))
}

fn write_files(topology: &Topology, network: &str, settings: &str) -> io::Result<()> {
    let mut text = "[bcube]\nports = 4\nk = 1\n\n[hosts]\n".to_owned();
    for server in (0..topology.hosts()).map(Vertex) {
        let (name, address) = (topology.name(server), fabric::address(server));
        let _ = writeln!(text, "\"{name}\" = \"{address}\"");
    }
    fs::write(network, text)?;
    let registry = fabric::address(SENDER);
    let text = format!("profile = \"bulk\"\nregistry = \"{registry}\"\nonly_multicast = true\n");
    fs::write(settings, text)
}

fn started(mut command: Command, log: &Path) -> Result<Process, CliError> {
    let file = File::create(log).map_err(|error| io_error(log, &error))?;
    let copy = file.try_clone().map_err(|error| io_error(log, &error))?;
    command.stdout(Stdio::from(file)).stderr(Stdio::from(copy));
    Process::start(command).map_err(|error| refused(&error))
}

fn failed(problem: impl ToString, files: &Path) -> CliError {
    CliError::new(problem.to_string(), format!("see the logs in {}", files.display()))
}

/// Returns the error for a file that cannot be used.
pub(super) fn io_error(path: &Path, error: &io::Error) -> CliError {
    let cause = format!("{}: {}", path.display(), plain(error));
    CliError::new(cause, "check that the directory of --out is writable and has space")
}

/// Size of a message, which fits in one packet.
pub(super) const MESSAGE_BYTES: usize = 1400;
const PATIENCE: Duration = Duration::from_secs(60);
/// Time for which the sender can send at most.
const LONGEST: Duration = Duration::from_secs(200);

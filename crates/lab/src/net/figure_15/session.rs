use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use carom_netns::Process;
use carom_proto::rdcm::topology::{Topology, Vertex};
use carom_terminal::{CliError, plain};

use super::fabric::{self, Fabric, RECEIVERS, SENDER};
use super::rates::Octets;
use crate::net::refusal::refused;

/// Programs that the experiment starts.
pub(super) struct Programs {
    carom: PathBuf,
    on_tree: PathBuf,
}

/// Processes of the registry, the sender and the receivers. The registry is on the sender's server.
pub(super) struct Session {
    /// State of the command that installs trees.
    pub(super) trees: PathBuf,
    receivers: Vec<Process>,
    sender: Process,
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
        Ok(Self { carom: real(carom, "--carom")?, on_tree: real(on_tree, "--on-tree")? })
    }
}

impl Session {
    /// Starts to send a file of some bytes at a rate in bytes per second.
    pub(super) fn start(
        fabric: &Fabric,
        programs: &Programs,
        files: &Path,
        (rate, bytes): (u64, u64),
    ) -> Result<Self, CliError> {
        let files = fs::canonicalize(files).map_err(|error| io_error(files, &error))?;
        let path = |name: &str| files.join(name).display().to_string();
        let (topology, data) = (path("network.toml"), path("data"));
        write_files(fabric.topology(), &topology, &data, bytes)
            .map_err(|error| io_error(&files, &error))?;
        let trees = files.join("trees");
        let start = |vertex: Vertex, log: &str, args: &[&str]| {
            let program = programs.carom.display().to_string();
            let mut command = fabric.node(vertex).command(&program, args);
            command.env("CAROM_TREE_STATE", &trees);
            started(command, &files.join(log))
        };
        let (store, hook) = (path("store"), programs.on_tree.display().to_string());
        let args = ["registry", "--store", &store, "--topology", &topology, "--on-tree", &hook];
        let registry = start(SENDER, "registry.log", &args)?;
        let service = fabric::address(SENDER).to_string();
        let mut receivers = Vec::new();
        for (number, vertex) in RECEIVERS.into_iter().enumerate() {
            let folder = path(&format!("receiver-{number}"));
            fs::create_dir_all(&folder).map_err(|error| io_error(&files, &error))?;
            let args = ["recv", "--from", "figure-15", &folder, "--registry", &service];
            receivers.push(start(vertex, &format!("receiver-{number}.log"), &args)?);
        }
        let (count, rate) = (RECEIVERS.len().to_string(), format!("{}kbit", rate * 8 / 1000));
        let to = ["send", &data, "--to", "figure-15", "--receivers", &count];
        let how = ["--registry", &service, "--path", "multicast", "--rate", &rate];
        let patience = ["--patience", "2s"];
        let sender = start(SENDER, "sender.log", &[&to[..], &how, &patience].concat())?;
        Ok(Self { trees, receivers, sender, registry, files })
    }

    /// Waits until a tree to all receivers is installed.
    pub(super) fn await_tree(&mut self, fabric: &Fabric) -> Result<TreeFile, CliError> {
        self.wait("no tree is installed", |session| {
            TreeFile::read(&session.trees, fabric).filter(TreeFile::reaches_all)
        })
    }

    /// Waits until the stream has the rate.
    pub(super) fn await_stream(&mut self, sender: &Octets, rate: u64) -> Result<(), CliError> {
        let mut before = None;
        self.wait("the sender does not reach the rate", |_| {
            thread::sleep(Duration::from_millis(500));
            let count = sender.read().ok()?.multicast;
            let last = before.replace(count)?;
            (count - last >= rate * 2 / 5).then_some(())
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
            let has_ended = self.sender.child().try_wait().is_ok_and(|status| status.is_some());
            if has_ended || Instant::now() > give_up {
                let fix = format!("see the logs in {}", self.files.display());
                return Err(CliError::new(problem, fix));
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Kills a receiver.
    pub(super) fn kill(&mut self, receiver: usize) -> Result<(), CliError> {
        self.receivers[receiver].kill().map_err(|error| refused(&error))
    }

    /// Waits until all receivers except `killed` have the whole file, and for the ends of the other
    /// processes.
    pub(super) fn finish(mut self, killed: usize) -> Result<(), CliError> {
        for (number, receiver) in self.receivers.iter_mut().enumerate() {
            if number != killed && !receiver.wait().map_err(|error| refused(&error))?.success() {
                let cause = format!("receiver {number} has not received the file");
                return Err(CliError::new(cause, format!("see {}", self.files.display())));
            }
        }
        let sender = self.sender.wait().map(|_| ());
        let registry = self.registry.interrupt().and_then(|()| self.registry.wait());
        sender.and(registry.map(|_| ())).map_err(|error| refused(&error))
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

    pub(super) fn contains(&self, link: [Vertex; 2]) -> bool {
        self.0.contains(&link)
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

fn write_files(topology: &Topology, network: &str, data: &str, bytes: u64) -> io::Result<()> {
    let mut text = "[bcube]\nports = 4\nk = 1\n\n[hosts]\n".to_owned();
    for server in (0..topology.hosts()).map(Vertex) {
        let (name, address) = (topology.name(server), fabric::address(server));
        let _ = writeln!(text, "\"{name}\" = \"{address}\"");
    }
    fs::write(network, text)?;
    let mut file = io::BufWriter::new(File::create(data)?);
    for number in 0..bytes / 8 {
        file.write_all(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes())?;
    }
    file.flush()
}

fn started(mut command: Command, log: &Path) -> Result<Process, CliError> {
    let file = File::create(log).map_err(|error| io_error(log, &error))?;
    let copy = file.try_clone().map_err(|error| io_error(log, &error))?;
    command.stdout(Stdio::from(file)).stderr(Stdio::from(copy));
    Process::start(command).map_err(|error| refused(&error))
}

/// Returns the error for a file that cannot be used.
pub(super) fn io_error(path: &Path, error: &io::Error) -> CliError {
    let cause = format!("{}: {}", path.display(), plain(error));
    CliError::new(cause, "check that the directory of --out is writable and has space")
}

const PATIENCE: Duration = Duration::from_secs(60);

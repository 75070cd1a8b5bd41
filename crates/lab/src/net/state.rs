//! The folders by which other commands find a running lab.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use carom_netns::{Lab, Owner};
use carom_terminal::{CliError, plain};
use serde::{Deserialize, Serialize};

/// A lab of `carom-lab net up`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct State {
    /// The process id of the owner, as text.
    pub(super) name: String,
    pub(super) owner: Owner,
    pub(super) hosts: Vec<HostState>,
}

/// A host of a lab.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct HostState {
    pub(super) name: String,
    pub(super) rack: usize,
    pub(super) address: String,
}

/// The folder of this process's lab, removed when it is dropped.
pub(super) struct StateFolder(PathBuf);

impl Drop for StateFolder {
    fn drop(&mut self) {
        // If this fails, `carom-lab net clean` removes the rest.
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl State {
    pub(super) fn new(owner: Owner, lab: &Lab) -> Self {
        let hosts = lab.hosts().iter().map(|host| HostState {
            name: host.name(),
            rack: host.rack(),
            address: host.address().to_string(),
        });
        Self { name: owner.pid.to_string(), owner, hosts: hosts.collect() }
    }

    /// Publishes the lab to other commands of this user. Returns the socket on which they request
    /// changes.
    pub(super) fn publish(&self) -> Result<(StateFolder, UnixListener), CliError> {
        let folder = self.folder();
        let failed = |error: &std::io::Error| {
            let cause = format!("cannot write {}: {}", folder.display(), plain(error));
            CliError::new(cause, "set TMPDIR to a writable directory")
        };
        DirBuilder::new().mode(0o700).create(&folder).map_err(|error| failed(&error))?;
        let published = StateFolder(folder.clone());
        let listener = UnixListener::bind(self.socket()).map_err(|error| {
            let cause = format!("cannot open {}: {}", self.socket().display(), plain(&error));
            CliError::new(
                cause,
                "set TMPDIR to a writable directory with a name of 60 bytes or less",
            )
        })?;
        let text = serde_json::to_string(self).map_err(|error| failed(&error.into()))?;
        // Readers see the file complete or not at all.
        fs::write(folder.join("new"), text).map_err(|error| failed(&error))?;
        fs::rename(folder.join("new"), folder.join(FILE)).map_err(|error| failed(&error))?;
        Ok((published, listener))
    }

    /// Returns the path of the socket on which the lab accepts requests.
    pub(super) fn socket(&self) -> PathBuf {
        self.folder().join(SOCKET)
    }

    fn folder(&self) -> PathBuf {
        let Owner { pid, start } = self.owner;
        std::env::temp_dir().join(format!("{PREFIX}{pid}-{start}"))
    }

    /// Returns the running labs of this user.
    pub(super) fn all() -> Vec<Self> {
        let own = folders().filter(|(folder, owner)| is_own(folder) && owner.is_alive());
        let read = |folder: PathBuf| fs::read_to_string(folder.join(FILE)).ok();
        let mut all: Vec<Self> =
            own.filter_map(|(it, _)| serde_json::from_str(&read(it)?).ok()).collect();
        all.sort_by_key(|state| state.owner.pid);
        all
    }

    /// Returns the lab with the given name, or the only one.
    pub(super) fn find(name: Option<&str>) -> Result<Self, CliError> {
        let mut all = Self::all();
        let names = all.iter().map(|state| state.name.as_str()).collect::<Vec<_>>().join(", ");
        if let Some(name) = name {
            let found = all.iter().position(|state| state.name == name);
            return found.map(|at| all.swap_remove(at)).ok_or_else(|| match names.is_empty() {
                true => none_runs(),
                false => {
                    let cause = format!("no lab is named '{name}'");
                    CliError::new(cause, format!("use one of {names}"))
                }
            });
        }
        match all.len() {
            0 => Err(none_runs()),
            1 => Ok(all.remove(0)),
            count => {
                let cause = format!("{count} labs are running");
                Err(CliError::new(cause, format!("use --lab with one of {names}")))
            }
        }
    }

    /// Returns the host with the given name.
    pub(super) fn host(&self, name: &str) -> Result<&HostState, CliError> {
        self.hosts.iter().find(|host| host.name == name).ok_or_else(|| {
            let cause = format!("the lab has no host '{name}'");
            CliError::new(cause, format!("use h1 to h{}", self.hosts.len()))
        })
    }
}

/// Removes the folders of this user's labs that were killed. Returns their names.
pub(super) fn remove_stale() -> Vec<String> {
    let stale = folders().filter(|(folder, owner)| is_own(folder) && !owner.is_alive());
    let removed = stale.filter(|(folder, _)| fs::remove_dir_all(folder).is_ok());
    removed.map(|(folder, _)| folder.display().to_string()).collect()
}

fn none_runs() -> CliError {
    let others = folders().filter(|(folder, owner)| !is_own(folder) && owner.is_alive());
    let uid = others.filter_map(|(folder, _)| fs::symlink_metadata(folder).ok()).next();
    match uid.map(|metadata| metadata.uid()) {
        Some(uid) => CliError::new(
            format!("the running lab belongs to another user, {uid}"),
            format!("run the command as that user: sudo -u '#{uid}' carom-lab net ..."),
        ),
        None => {
            CliError::new("no lab is running", "start one in another terminal: `carom-lab net up`")
        }
    }
}

/// Returns the folders of labs and their owners.
fn folders() -> impl Iterator<Item = (PathBuf, Owner)> {
    let entries = fs::read_dir(std::env::temp_dir()).into_iter().flatten();
    entries.filter_map(|entry| {
        let entry = entry.ok()?;
        let name = entry.file_name().into_string().ok()?;
        let (pid, start) = name.strip_prefix(PREFIX)?.split_once('-')?;
        Some((entry.path(), Owner { pid: pid.parse().ok()?, start: start.parse().ok()? }))
    })
}

/// Returns `true` for a folder, not a link, of this user.
fn is_own(folder: &Path) -> bool {
    let this = fs::metadata("/proc/self").map(|metadata| metadata.uid());
    let found = fs::symlink_metadata(folder);
    found.is_ok_and(|found| found.is_dir() && this.is_ok_and(|uid| uid == found.uid()))
}

const PREFIX: &str = "carom-lab-";
const FILE: &str = "lab.json";
const SOCKET: &str = "control";

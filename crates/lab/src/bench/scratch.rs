use std::fs;
use std::path::{Path, PathBuf};

use carom_terminal::CliError;
use nix::mount::{MsFlags, mount};

/// Mounts a file system in memory, which only this process and its children see. It disappears with
/// them. Call it in isolation.
///
/// `used` are paths that must stay visible.
pub(super) fn mounted(used: &[&Path]) -> Result<PathBuf, CliError> {
    // A symbolic link may lead into a folder that would be covered.
    let real = |path: &&Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let used: Vec<PathBuf> = used.iter().map(real).collect();
    let covers = |place: &Path| used.iter().any(|path| path.starts_with(place));
    let mut places = PLACES.map(Path::new).into_iter();
    let place = places.find(|place| place.is_dir() && !covers(place));
    let Some(place) = place else {
        let cause = format!("none of {} can be covered for files in memory", PLACES.join(", "));
        return Err(CliError::new(cause, "create one of them, or use --out and --peers elsewhere"));
    };
    let none: Option<&str> = None;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("tmpfs"), place, Some("tmpfs"), flags, none).map_err(|errno| {
        let cause = format!("cannot mount files in memory on {}: {errno}", place.display());
        CliError::new(cause, "run as root, or permit user namespaces")
    })?;
    Ok(place.to_owned())
}

/// Removes the files of the last run, and returns a folder for each node of the next one.
pub(super) fn folders(scratch: &Path, nodes: usize) -> std::io::Result<Vec<PathBuf>> {
    let run = scratch.join("run");
    if run.exists() {
        fs::remove_dir_all(&run)?;
    }
    let folders: Vec<PathBuf> = (0..nodes).map(|index| run.join(index.to_string())).collect();
    folders.iter().try_for_each(fs::create_dir_all)?;
    Ok(folders)
}

/// Folders that exist on every machine and that no program under test uses.
const PLACES: [&str; 3] = ["/mnt", "/media", "/srv"];

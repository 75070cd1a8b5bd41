use std::fs;
use std::os::unix::fs::MetadataExt as _;

use carom_netns::Host;

use super::failure::Failure;

/// Returns the ids of all processes on a host.
pub(super) fn on(host: &Host) -> Result<Vec<i32>, Failure> {
    let identity = |path: &str| fs::metadata(path).map(|file| (file.dev(), file.ino()));
    let namespace = host.enter(|| identity("/proc/thread-self/ns/net"))?;
    let namespace = namespace.map_err(|error| format!("cannot identify a namespace: {error}"))?;
    let entries = fs::read_dir("/proc").map_err(|error| format!("cannot read /proc: {error}"))?;
    let ids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    // A process that has ended, or that belongs to another user, is on no host.
    let is_on_host =
        |id: &i32| identity(&format!("/proc/{id}/ns/net")).is_ok_and(|own| own == namespace);
    Ok(ids.filter(is_on_host).collect())
}

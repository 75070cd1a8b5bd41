//! A disk in memory that is really full after 6 MB.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::skipping::lacking;

pub(crate) struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts a disk at this path. Returns `None` after a report if this is not permitted.
    pub(crate) fn mount(at: &Path) -> Option<Self> {
        fs::create_dir_all(at).expect("a folder for the test");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=6m", "carom-test"]).arg(at);
        let why = match mount.output() {
            Ok(output) if output.status.success() => return Some(Self(at.to_owned())),
            Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            Err(error) => error.to_string(),
        };
        lacking(&format!("needs root and tmpfs: {why}"));
        None
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // A lazy unmount succeeds even if a file is still open.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

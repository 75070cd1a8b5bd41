use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::progress::Reporter;

/// The settings of a receiver.
#[derive(Clone)]
pub struct ReceiveOptions {
    /// Target directory, which is created if it is missing.
    pub directory: PathBuf,
    /// Name of this receiver in the sender's summary. Default: the name of the host.
    pub name: String,
    /// `true` to replace existing files and symlinks, and to merge directories. Default: `false`.
    pub overwrite: bool,
    /// TCP address at which pieces are served to other receivers. Default: any free port on all
    /// IPv4 addresses, or on all IPv6 addresses if the sender was reached by IPv6.
    pub listen: SocketAddr,
    /// Time without blocks until an ended stream is over for this receiver. Default: 250 ms.
    pub settle: Duration,
    /// Time for which the receiver tries to reconnect to a lost sender. Default: 5 min.
    pub patience: Duration,
    /// Maximum memory for incomplete pieces, in bytes. At least two pieces are always allowed.
    /// Default: 64 MiB.
    pub assembly_bytes: usize,
    /// `true` to write into the page cache, for files that will be read soon. Default: `false`,
    /// which saves processor time and leaves the memory to other programs.
    pub cached: bool,
    /// Reporter of progress events. Default: none.
    pub reporter: Reporter,
}

impl ReceiveOptions {
    /// Returns the default settings for the target directory `directory`.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Self {
            directory: directory.into(),
            name: host,
            overwrite: false,
            listen: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            settle: Duration::from_millis(250),
            patience: Duration::from_secs(300),
            assembly_bytes: 64 << 20,
            cached: false,
            reporter: Reporter::none(),
        }
    }

    /// Returns the hash that distinguishes receivers of the same name.
    ///
    /// It stays the same when the directory is created, and for later receivers into it.
    pub(crate) fn place(&self) -> [u8; 16] {
        let path = std::path::absolute(&self.directory);
        let path = path.unwrap_or_else(|_| self.directory.clone());
        let real = path.ancestors().find_map(|there| {
            let rest = path.strip_prefix(there).ok()?;
            Some(there.canonicalize().ok()?.components().chain(rest.components()).collect())
        });
        let real: PathBuf = real.unwrap_or(path);
        let mut hasher = blake3::Hasher::new();
        hasher.update(rustix::system::uname().nodename().to_bytes_with_nul());
        hasher.update(real.as_os_str().as_encoded_bytes());
        let mut place = [0; 16];
        hasher.finalize_xof().fill(&mut place);
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_is_equal_for_all_spellings_of_a_directory() {
        let folder = tempfile::tempdir().expect("a directory");
        let place = |name: &str| ReceiveOptions::new(folder.path().join(name)).place();
        let before = place("a/b");
        std::fs::create_dir_all(folder.path().join("a/b")).expect("it is new");
        assert_eq!(place("a/b"), before);
        std::os::unix::fs::symlink("a", folder.path().join("link")).expect("it is new");
        assert_eq!(place("link/b"), before);
        assert_eq!(place("link/./b/"), before);
        assert_ne!(place("a"), before);
    }
}

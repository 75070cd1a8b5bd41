//! How something is received.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::progress::Reporter;

/// How something is received.
#[derive(Clone)]
pub struct ReceiveOptions {
    /// Where it goes; made if it is not there.
    pub directory: PathBuf,
    /// What this receiver is called in the sender's summary. Default: the name of the host.
    pub name: String,
    /// Whether what is there already may be replaced: files by files, and directories are merged.
    /// Default: no.
    pub overwrite: bool,
    /// Where this receiver gives pieces to others. Default: any free port on all addresses of IPv4.
    pub listen: SocketAddr,
    /// After the end of the stream, what has not come within so long after the last block is
    /// fetched. Default: 250 ms.
    pub settle: Duration,
    /// For how long a sender that is lost is waited for. Default: 5 min.
    pub patience: Duration,
    /// The most memory for pieces that have come in part; at least two are kept. Default: 64 MiB.
    pub assembly_bytes: usize,
    /// Whether what is written stays in memory, as far as there is room, for who reads it soon.
    /// Default: no, it goes past the page cache where the file system can do that, which takes half
    /// of the processor time and leaves the memory to others.
    pub cached: bool,
    /// Who is told about progress. Default: nobody.
    pub reporter: Reporter,
}

impl ReceiveOptions {
    /// The defaults, into `directory`.
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

    /// Which directory of which machine this is, whether it is there already or not: the same for
    /// whoever receives into it later.
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
    fn a_place_is_the_same_before_and_after_it_is_made_and_however_it_is_written() {
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

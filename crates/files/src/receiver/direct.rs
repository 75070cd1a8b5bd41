//! Writes data without the page cache (`O_DIRECT`), if the file system supports this.
//!
//! On a machine whose memory has not been used before, copying data into the page cache takes more
//! than half of a receiver's processor time. The data is also often larger than the memory.

use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;

use crate::receiver::folder::Folder;

/// Alignment of buffers, file offsets and sizes for direct writes on any disk.
pub(crate) const ALIGNMENT: usize = 4096;
/// Minimum size of a direct write, in bytes. Smaller writes do not pay off.
const LEAST: usize = 64 << 10;

#[derive(Debug)]
pub(crate) struct Direct {
    is_wanted: AtomicBool,
}

impl Direct {
    pub(crate) fn new(is_wanted: bool) -> Self {
        Self { is_wanted: AtomicBool::new(is_wanted) }
    }

    /// Writes a prefix of `bytes` at offset `at`, and returns its length, which may be 0.
    pub(crate) fn write(
        &self,
        folder: &Folder,
        name: &OsStr,
        bytes: &[u8],
        at: u64,
    ) -> io::Result<usize> {
        let whole = bytes.len() - bytes.len() % ALIGNMENT;
        let is_aligned =
            bytes.as_ptr().addr().is_multiple_of(ALIGNMENT) && at.is_multiple_of(ALIGNMENT as u64);
        if whole < LEAST || !is_aligned || !self.is_wanted.load(Ordering::Relaxed) {
            return Ok(0);
        }
        let written =
            folder.rewrite_direct(name).and_then(|file| file.write_all_at(&bytes[..whole], at));
        match written {
            Ok(()) => Ok(whole),
            // The file system does not support direct writes, or not with this alignment.
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                self.is_wanted.store(false, Ordering::Relaxed);
                Ok(0)
            }
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use bytes::BytesMut;

    use super::*;

    #[test]
    fn aligned_data_is_written_in_whole_blocks_without_the_rest() {
        let dir = tempfile::TempDir::new().expect("a directory");
        let folder = Folder::named(dir.path()).expect("it is there");
        let name = OsStr::new("file");
        folder.write(name).expect("made").set_len(1 << 20).expect("sized");
        let mut memory = BytesMut::zeroed(300_000 + ALIGNMENT);
        let skipped = memory.as_ptr().align_offset(ALIGNMENT);
        let bytes = &mut memory[skipped..][..300_000];
        bytes.iter_mut().zip(0_u32..).for_each(|(byte, place)| *byte = (place % 251) as u8);
        let direct = Direct::new(true);

        let written = direct.write(&folder, name, bytes, 8192).expect("written");
        // An in-memory file system may not support direct writes.
        if direct.is_wanted.load(Ordering::Relaxed) {
            assert_eq!(written, 299_008);
            let file = fs::read(dir.path().join("file")).expect("read");
            assert!(file[8192..][..written] == bytes[..written]);
            assert!(file[8192 + written..].iter().all(|byte| *byte == 0));
        } else {
            assert_eq!(written, 0);
        }
        for (bytes, at) in [(&bytes[1..], 0), (&bytes[..], 512), (&bytes[..4096], 0)] {
            assert_eq!(direct.write(&folder, name, bytes, at).expect("left"), 0);
        }
        let cached = Direct::new(false);
        assert_eq!(cached.write(&folder, name, bytes, 0).expect("left"), 0);
    }
}

//! Finishing what only lacked its name when the receiver died.

use std::ffi::OsStr;
use std::fs;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use crate::error::ReceiveError;
use crate::id::TransferId;
use crate::limits::MAX_MANIFEST_BYTES;
use crate::manifest::Manifest;
use crate::names::BESIDE;
use crate::receiving::folder::{Folder, Found};
use crate::receiving::store::{BUILT, MANIFEST, Store};

const DAMAGED: &str =
    "some of what was complete has been changed or lost since; a sender is needed for that";

/// Finishes transfers into `directory` that were complete and on the disk when their receiver died,
/// so that no sender is needed for them. What is there of them is read and verified again first; if
/// it is not whole, it is kept, and a sender is needed for the rest. Of each it says whether that
/// succeeded. What never was complete, or is being received by somebody now, is left alone.
///
/// A receiver calls this before it waits for an offer. `overwrite` is as in
/// [`ReceiveOptions`](crate::ReceiveOptions).
pub fn recover(directory: &Path, overwrite: bool) -> Vec<(TransferId, Result<(), ReceiveError>)> {
    let names = fs::read_dir(directory).into_iter().flatten().flatten();
    let names = names.map(|entry| entry.file_name());
    let beside = names.filter(|name| name.as_bytes().starts_with(BESIDE.as_bytes()));
    let manifests = beside.filter_map(|name| built(directory, &name));
    let finish = |manifest: Manifest| {
        let id = manifest.id();
        let path = directory.to_owned();
        let store = Store::open(path, Arc::new(manifest), overwrite, &mut || {});
        let publish = |store: Store| match store.is_complete() {
            true => store.publish(),
            false => Err(ReceiveError::disk(directory.display(), DAMAGED)),
        };
        match store.and_then(publish) {
            Err(ReceiveError::InUse) => None,
            finished => Some((id, finished)),
        }
    };
    manifests.filter_map(finish).collect()
}

/// The manifest in a directory of ours that tells that everything is in its tree.
fn built(directory: &Path, name: &OsStr) -> Option<Manifest> {
    let stage = Folder::named(directory).ok()?.folder(name).ok()?;
    if !stage.is_ours().ok()? || stage.look(OsStr::new(BUILT)).ok()? != Found::File {
        return None;
    }
    let mut bytes = Vec::new();
    let file = stage.read(OsStr::new(MANIFEST)).ok()?;
    file.take(u64::from(MAX_MANIFEST_BYTES) + 1).read_to_end(&mut bytes).ok()?;
    Manifest::decode(&bytes).ok()
}

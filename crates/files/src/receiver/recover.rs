use std::ffi::OsStr;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use crate::error::ReceiveError;
use crate::id::TransferId;
use crate::limits::MAX_MANIFEST_BYTES;
use crate::manifest::Manifest;
use crate::receiver::folder::{Folder, Found};
use crate::receiver::kept::beside;
use crate::receiver::store::{BUILT, MANIFEST, Store};

const DAMAGED: &str =
    "some of the received data has been changed or lost; a sender is needed to restore it";

/// Finishes transfers into `directory` that were interrupted when only final names were missing.
///
/// The data is read and verified first. If it does not match, it is kept, and a sender is needed
/// for the missing pieces. Returns the id and the result of each transfer that no other process is
/// receiving.
///
/// Call this before waiting for an offer. For `overwrite`, see
/// [`ReceiveOptions`](crate::ReceiveOptions::overwrite).
pub fn recover(directory: &Path, overwrite: bool) -> Vec<(TransferId, Result<(), ReceiveError>)> {
    let manifests = beside(directory).filter_map(|name| built(directory, &name));
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

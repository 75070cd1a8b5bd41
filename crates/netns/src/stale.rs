use std::fs;

use crate::error::Error;
use crate::lab;
use crate::namespace::{NAMED, Namespace};

/// Removes the namespaces of labs whose process has ended without removing them. Returns their
/// names.
///
/// Only a lab outside [`isolate`](crate::isolate) can leave namespaces behind, after SIGKILL. Those
/// of a running process are never removed.
pub fn remove_stale() -> Result<Vec<String>, Error> {
    let Ok(entries) = fs::read_dir(NAMED) else { return Ok(Vec::new()) };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let is_stale = |name: &String| lab::owner_of(name).is_some_and(|owner| !owner.is_alive());
    let stale: Vec<String> = names.filter(is_stale).collect();
    stale.iter().try_for_each(|name| Namespace::new(name.clone()).delete())?;
    Ok(stale)
}

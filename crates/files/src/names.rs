//! Names within a transfer, and the rules that keep them inside it.
//!
//! Both sides check every name. The sender does so to offer only names that receivers accept, and
//! the receiver because it does not trust the sender.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::limits::{MAX_COMPONENTS, MAX_NAME_BYTES, MAX_PATH_BYTES};

/// Prefix of the names of staging directories. Paths of entries must not start with it.
pub(crate) const BESIDE: &str = ".carom-";

/// The path of an entry below the target directory.
///
/// Its components are separated by `/`, and none is empty, `.` or `..`. Components may contain all
/// other bytes except NUL. [`NameError`] lists all rules.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryPath(Box<[u8]>);

/// The reason why a name is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// The name or a component is empty, or the name ends with a slash.
    #[error("the path has an empty component")]
    Empty,
    /// The name starts with a slash.
    #[error("the path is absolute")]
    Absolute,
    /// A component is `.` or `..`.
    #[error("the path has a `.` or `..` component")]
    Dots,
    /// The name contains a NUL byte.
    #[error("the path contains a NUL byte")]
    Nul,
    /// The path, a component or the number of components exceeds its limit.
    #[error(
        "the path is too long: expected at most {MAX_PATH_BYTES} bytes, and {MAX_COMPONENTS} \
         components of at most {MAX_NAME_BYTES} bytes"
    )]
    TooLong,
    /// The name starts with `.carom-`, which is reserved for incomplete transfers.
    #[error("names that start with `{BESIDE}` are reserved for incomplete transfers")]
    Kept,
    /// The target of the symlink is, or could be, outside its tree.
    #[error("the symlink leads out of its tree")]
    Leaves,
}

impl EntryPath {
    /// Creates a path from its encoded bytes.
    ///
    /// # Errors
    /// Returns an error for the first violated rule.
    pub fn new(bytes: &[u8]) -> Result<Self, NameError> {
        if bytes.len() > MAX_PATH_BYTES {
            return Err(NameError::TooLong);
        }
        if bytes.first() == Some(&b'/') {
            return Err(NameError::Absolute);
        }
        for component in bytes.split(|byte| *byte == b'/') {
            check_component(component)?;
        }
        if bytes.iter().filter(|byte| **byte == b'/').count() >= MAX_COMPONENTS {
            return Err(NameError::TooLong);
        }
        if bytes.starts_with(BESIDE.as_bytes()) {
            return Err(NameError::Kept);
        }
        Ok(Self(bytes.into()))
    }

    /// Returns the path of `name` in this directory.
    ///
    /// # Errors
    /// See [`new`](Self::new).
    pub fn join(&self, name: &OsStr) -> Result<Self, NameError> {
        Self::new(&[&self.0, &b"/"[..], name.as_bytes()].concat())
    }

    /// Returns the encoded bytes of the path.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the path as a relative path of the operating system.
    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }

    /// Returns the components of the path, from the top.
    pub fn components(&self) -> impl DoubleEndedIterator<Item = &OsStr> {
        self.0.split(|byte| *byte == b'/').map(OsStr::from_bytes)
    }

    /// Returns the path of the directory that contains the entry, or `None` at the top level.
    pub fn parent(&self) -> Option<&[u8]> {
        let slash = self.0.iter().rposition(|byte| *byte == b'/')?;
        Some(&self.0[..slash])
    }

    /// Returns the last component of the path.
    pub fn name(&self) -> &OsStr {
        self.components().next_back().expect("a path has a component")
    }

    /// Returns `true` if the entry is at the top level, that is, a source.
    pub fn is_root(&self) -> bool {
        !self.0.contains(&b'/')
    }
}

impl fmt::Display for EntryPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The name is escaped, because control characters in it could move a terminal's cursor.
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl fmt::Debug for EntryPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{self}`")
    }
}

fn check_component(component: &[u8]) -> Result<(), NameError> {
    match component {
        b"" => Err(NameError::Empty),
        b"." | b".." => Err(NameError::Dots),
        _ if component.contains(&0) => Err(NameError::Nul),
        _ if component.len() > MAX_NAME_BYTES => Err(NameError::TooLong),
        _ => Ok(()),
    }
}

/// Checks that the symlink `at` leads to the top-level directory of `at` or below it.
///
/// In `target`, `..` is allowed only at the start, where it leads to directories of the manifest.
/// After a component that could itself be a symlink, the meaning of `..` would be unknown.
///
/// # Errors
/// Returns [`NameError::Leaves`] if it could lead elsewhere, or the error for another broken rule.
pub fn check_link(at: &EntryPath, target: &[u8]) -> Result<(), NameError> {
    if target.len() > MAX_PATH_BYTES {
        return Err(NameError::TooLong);
    }
    if target.is_empty() {
        return Err(NameError::Empty);
    }
    if target[0] == b'/' {
        return Err(NameError::Absolute);
    }
    let above = at.components().count() - 1;
    let mut ups = 0;
    let mut went_down = false;
    for component in target.split(|byte| *byte == b'/') {
        match component {
            b".." if went_down => return Err(NameError::Leaves),
            b".." => ups += 1,
            b"." | b"" => {}
            _ => {
                check_component(component)?;
                went_down = true;
            }
        }
    }
    // The top-level directory is the highest one inside the tree.
    if ups + 1 > above { Err(NameError::Leaves) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> EntryPath {
        EntryPath::new(text.as_bytes()).expect("a good path")
    }

    #[test]
    fn names_that_leave_the_directory_are_refused() {
        for (bytes, why) in [
            (&b"/etc/passwd"[..], NameError::Absolute),
            (b"..", NameError::Dots),
            (b"a/../b", NameError::Dots),
            (b"a/./b", NameError::Dots),
            (b"a/..", NameError::Dots),
            (b"a\0b", NameError::Nul),
            (b"", NameError::Empty),
            (b"a//b", NameError::Empty),
            (b"a/", NameError::Empty),
            (b".carom-0011223344556677/journal", NameError::Kept),
            (&[b'x'; 256], NameError::TooLong),
            (&[b'/'; 5000], NameError::TooLong),
            ("x/".repeat(200).trim_end_matches('/').as_bytes(), NameError::TooLong),
        ] {
            assert_eq!(EntryPath::new(bytes), Err(why), "{}", bytes.escape_ascii());
        }
        for good in ["a", "a/b", "...", "a/..b", "a\\..\\b", "a/.carom-x", "\u{fc}\n"] {
            assert_eq!(
                EntryPath::new(good.as_bytes()).map(|p| p.as_bytes().to_vec()),
                Ok(good.into())
            );
        }
    }

    #[test]
    fn a_symlink_may_lead_up_to_the_top_of_its_tree_and_no_further() {
        for (at, target) in
            [("d/l", "x"), ("d/l", "x/y"), ("d/a/l", "../b"), ("d/a/b/l", "../../c"), ("d/l", ".")]
        {
            assert_eq!(check_link(&path(at), target.as_bytes()), Ok(()), "{at} -> {target}");
        }
        for (at, target) in [
            ("d/l", "../x"),
            ("d/l", ".."),
            ("l", "x"),
            ("d/a/l", "../../x"),
            ("d/a/l", "./.././../x"),
            ("d/a/b/l", "x/../.."),
            // Lexically, this stays inside. If `p` is a symlink to `../..`, it leaves the tree.
            ("d/q", "a/b/p/.."),
        ] {
            let checked = check_link(&path(at), target.as_bytes());
            assert_eq!(checked, Err(NameError::Leaves), "{at} -> {target}");
        }
        assert_eq!(check_link(&path("d/l"), b"/etc"), Err(NameError::Absolute));
        assert_eq!(check_link(&path("d/l"), b""), Err(NameError::Empty));
        assert_eq!(check_link(&path("d/l"), b"a\0"), Err(NameError::Nul));
    }

    #[test]
    fn a_name_that_is_shown_moves_no_cursor() {
        assert_eq!(path("a\u{1b}[2J").to_string(), "a\\x1b[2J");
    }
}

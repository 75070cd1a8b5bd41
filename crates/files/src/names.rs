//! Names within a transfer, and the rule that none of them leads out of it.
//!
//! Both sides hold every name against these rules: the sender so that it offers nothing that would
//! be refused, the receiver because it does not trust the sender.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::limits::{MAX_COMPONENTS, MAX_NAME_BYTES, MAX_PATH_BYTES};

/// What the names of directories beside the target begin with; no entry may.
pub(crate) const BESIDE: &str = ".carom-";

/// A path of an entry below the receiver's directory: components with `/` between them, none of
/// them empty, `.` or `..`, in any bytes that a file system takes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryPath(Box<[u8]>);

/// Why a name is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing, or nothing between two slashes, or a slash at the end.
    #[error("it has an empty component")]
    Empty,
    /// It begins with a slash.
    #[error("it is absolute")]
    Absolute,
    /// A component is `.` or `..`.
    #[error("it has a component `.` or `..`")]
    Dots,
    /// A NUL byte.
    #[error("it has a NUL byte")]
    Nul,
    /// Longer than a path or a component may be.
    #[error("it is too long")]
    TooLong,
    /// It begins with `.carom-`, which is kept for what is not complete yet.
    #[error("names that begin with `{BESIDE}` are kept for what is not complete yet")]
    Kept,
    /// A symlink that leads out of the tree that it is in, or could.
    #[error("the symlink leads out of what is sent")]
    Leaves,
}

impl EntryPath {
    /// Checks a path as it came.
    ///
    /// # Errors
    /// The first rule that it breaks.
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

    /// The path of `name` in the directory that this is.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn join(&self, name: &OsStr) -> Result<Self, NameError> {
        Self::new(&[&self.0, &b"/"[..], name.as_bytes()].concat())
    }

    /// The bytes as they travel.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// As a relative path of the system.
    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }

    /// The components from the first to the last.
    pub fn components(&self) -> impl DoubleEndedIterator<Item = &OsStr> {
        self.0.split(|byte| *byte == b'/').map(OsStr::from_bytes)
    }

    /// The directory that it is in; `None` at the top.
    pub fn parent(&self) -> Option<&[u8]> {
        let slash = self.0.iter().rposition(|byte| *byte == b'/')?;
        Some(&self.0[..slash])
    }

    /// The last component.
    pub fn name(&self) -> &OsStr {
        self.components().next_back().expect("a path has a component")
    }

    /// Whether it is at the top, one of the paths that the sender was given.
    pub fn is_root(&self) -> bool {
        !self.0.contains(&b'/')
    }
}

impl fmt::Display for EntryPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A name may hold what moves a terminal's cursor.
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

/// Checks where the symlink `at` leads: to a place below the first component of `at`.
///
/// `..` may stand at the beginning alone. There it is resolved from a directory that is in the
/// manifest as one, so that no other symlink can change what it means; behind a component that
/// could itself be a symlink it would mean anything.
///
/// # Errors
/// [`NameError::Leaves`] and what is wrong with a name.
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
            // `.` and a slash too many change nothing.
            b"." | b"" => {}
            _ => {
                check_component(component)?;
                went_down = true;
            }
        }
    }
    // The directory at the top is the highest that is inside.
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
            // Stays inside if read as text, and leaves if `p` is a symlink to `../..`.
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

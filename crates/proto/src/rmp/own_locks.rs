use alloc::collections::BTreeMap;

use crate::ring::{LockError, LockName};

#[derive(Debug, Default)]
pub(crate) struct OwnLocks {
    requested: BTreeMap<LockName, Requested>,
}

#[derive(Clone, Copy, Debug)]
struct Requested {
    is_wanted: bool,
    request: u32,
    is_shown: bool,
}

impl OwnLocks {
    pub(crate) fn may_request(&self, name: LockName) -> Result<(), LockError> {
        match self.requested.get(&name) {
            Some(last) if last.is_wanted => Err(LockError::AlreadyAsked),
            None if self.requested.len() >= MAX_OWN => {
                Err(LockError::TooMany { asked: self.requested.len() })
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn may_release(&self, name: LockName) -> Result<(), LockError> {
        let is_wanted = self.requested.get(&name).is_some_and(|it| it.is_wanted);
        if is_wanted { Ok(()) } else { Err(LockError::NotAsked) }
    }

    pub(crate) fn on_requested(&mut self, name: LockName, is_wanted: bool, request: u32) {
        self.requested.insert(name, Requested { is_wanted, request, is_shown: false });
    }

    pub(crate) fn on_shown(&mut self, name: LockName, request: u32) {
        if let Some(last) = self.requested.get_mut(&name).filter(|it| it.request == request) {
            last.is_shown = true;
        }
    }

    /// Returns `true` if the lock is wanted and a view has shown the request. Otherwise, a grant
    /// belongs to a withdrawn request, and the lock is about to be lost.
    pub(crate) fn is_wanted_as_shown(&self, name: LockName) -> bool {
        self.requested.get(&name).is_some_and(|it| it.is_wanted && it.is_shown)
    }

    pub(crate) fn on_ended(&mut self, name: LockName, request: u32) -> bool {
        let is_last = self.requested.get(&name).is_some_and(|it| it.request == request);
        if is_last {
            self.requested.remove(&name);
        }
        is_last
    }

    pub(crate) fn lose(&mut self) -> impl Iterator<Item = LockName> + use<> {
        core::mem::take(&mut self.requested).into_keys()
    }

    pub(crate) fn check(&self) {
        assert!(self.requested.len() <= MAX_OWN, "{} locks were requested", self.requested.len());
    }
}

pub(crate) const MAX_OWN: usize = 1024;

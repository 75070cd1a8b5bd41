//! Mutually exclusive locks of a group (3.3, 4.3), with their holders and waiting processes.
//!
//! Locks are part of the view. They are therefore the same at all members, and a view that removes
//! a member passes its locks on. The paper refuses a request for a lock that is held. Here, a
//! process that waits is queued behind the holder, in order of arrival.

use alloc::collections::{BTreeMap, VecDeque};
use core::fmt;

use super::place::{Process, Timestamp};

/// Locks of a ring. Each lock has a holder, followed by the waiting processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Locks {
    queues: BTreeMap<LockName, VecDeque<Process>>,
    entries: usize,
}

/// Name of a lock. 0 to 5 are the locks of the handlers. Other names are usually [hashes of
/// strings](Self::of_name).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub struct LockName(pub u64);

/// One of the six handlers of a group (3.3). The holder of its lock answers requests to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub struct Handler(#[cfg_attr(test, proptest(strategy = "0..6_u8"))] u8);

/// A change to a lock that this node has requested, at its place among the messages.
///
/// The change refers to the latest request, provided that the caller takes all events before it
/// sends another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockNews {
    /// Name of the lock.
    pub name: LockName,
    /// Outcome of the request, or loss of the lock.
    pub change: LockChange,
}

/// Outcome of a lock request, or loss of the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockChange {
    /// This node holds the lock, and a majority of the ring has the grant. Every ordered message
    /// with an earlier place has been delivered before.
    Granted {
        /// Number that increases with each grant of the lock in this ring and in the rings that
        /// follow it by reformations. A resource that rejects smaller numbers is safe from earlier
        /// holders. Rings that were created anew or separately count separately.
        fence: Timestamp,
    },
    /// The lock was not granted.
    Refused {
        /// The holder, or `None` if the lock is free but [`Locks::MAX_ENTRIES`] is reached.
        holder: Option<Process>,
    },
    /// The lock was released, or this node stopped waiting for it.
    Released,
    /// This node is no longer in the ring. It neither holds the lock nor waits for it.
    Lost,
}

/// Error returned when a lock cannot be requested or released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LockError {
    /// This node is not in the group, or is leaving it.
    #[error("this node is not in the group")]
    NotJoined,
    /// This node holds the lock or has already requested it.
    #[error("this node already holds the lock or has requested it")]
    AlreadyAsked,
    /// This node has not requested the lock, or has already released it.
    #[error("this node has not requested the lock")]
    NotAsked,
    /// This node holds, waits for, or releases too many locks, or has too many queued requests.
    #[error("too many lock requests: this node already has {asked}")]
    TooMany {
        /// Number of such locks, or of queued change requests.
        asked: usize,
    },
}

impl Handler {
    /// Number of handlers.
    pub const COUNT: u8 = 6;

    /// Returns the handler with this number, or `None` if it is not less than [`Handler::COUNT`].
    pub const fn new(number: u8) -> Option<Self> {
        if number < Self::COUNT { Some(Self(number)) } else { None }
    }

    /// Returns the number of the handler.
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Returns the lock whose holder replies for this handler.
    pub const fn lock(self) -> LockName {
        LockName(self.0 as u64)
    }
}

impl LockName {
    /// Returns the lock called `name`: a hash of the name, which never equals a handler's lock.
    pub fn of_name(name: &str) -> Self {
        Self(crate::ids::name_hash(name) | 1 << 63)
    }

    /// Returns the handler whose lock this is, if any.
    pub fn handler(self) -> Option<Handler> {
        u8::try_from(self.0).ok().and_then(Handler::new)
    }
}

impl From<&str> for LockName {
    fn from(name: &str) -> Self {
        Self::of_name(name)
    }
}

impl From<Handler> for LockName {
    fn from(handler: Handler) -> Self {
        handler.lock()
    }
}

impl Locks {
    /// Maximum number of holders and waiting processes, over all locks.
    pub const MAX_ENTRIES: usize = 4096;

    /// Returns the holder of a lock, or `None` if the lock is free.
    pub fn holder(&self, name: LockName) -> Option<Process> {
        self.queues.get(&name)?.front().copied()
    }

    /// Returns the processes that wait for a lock, starting with the next holder.
    pub fn waiting(&self, name: LockName) -> impl Iterator<Item = Process> {
        self.queues.get(&name).into_iter().flat_map(|queue| queue.iter().skip(1).copied())
    }

    /// Returns all locks that are held, with their holders.
    pub fn held(&self) -> impl Iterator<Item = (LockName, Process)> {
        self.queues.iter().filter_map(|(name, queue)| Some((*name, *queue.front()?)))
    }

    /// Returns the number of locks that are held.
    pub fn len(&self) -> usize {
        self.queues.len()
    }

    /// Returns `true` if no lock is held.
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    pub(crate) fn has_room_for(&self, count: usize) -> bool {
        self.entries + count <= Self::MAX_ENTRIES
    }

    pub(crate) fn admits(&self, name: LockName, process: Process, waits: bool) -> bool {
        let Some(queue) = self.queues.get(&name) else { return self.has_room_for(1) };
        queue.contains(&process) || (waits && self.has_room_for(1))
    }

    /// Queues `process` for the lock, unless it is queued. The first process holds the lock.
    pub fn ask(&mut self, name: LockName, process: Process) {
        let queue = self.queues.entry(name).or_default();
        if !queue.contains(&process) {
            queue.push_back(process);
            self.entries += 1;
        }
    }

    pub(crate) fn release(&mut self, name: LockName, process: Process) {
        let Some(queue) = self.queues.get_mut(&name) else { return };
        let before = queue.len();
        queue.retain(|it| *it != process);
        self.entries -= before - queue.len();
        if queue.is_empty() {
            self.queues.remove(&name);
        }
    }

    pub(crate) fn remove(&mut self, process: Process) {
        for queue in self.queues.values_mut() {
            queue.retain(|it| *it != process);
        }
        self.queues.retain(|_, queue| !queue.is_empty());
        self.entries = self.queues.values().map(VecDeque::len).sum();
    }

    pub(crate) fn queues(&self) -> impl Iterator<Item = (LockName, &VecDeque<Process>)> {
        self.queues.iter().map(|(name, queue)| (*name, queue))
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.handler() {
            Some(handler) => write!(f, "handler {}", handler.0),
            None => write!(f, "lock {:016x}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::process;

    const LOCK: LockName = LockName(9);

    #[test]
    fn first_requester_holds_the_lock_and_others_follow_in_order() {
        let mut locks = Locks::default();
        [3, 1, 2, 1].into_iter().for_each(|node| locks.ask(LOCK, process(node)));
        assert_eq!(locks.holder(LOCK), Some(process(3)));
        assert_eq!(locks.waiting(LOCK).collect::<Vec<_>>(), [process(1), process(2)]);
        locks.release(LOCK, process(3));
        assert_eq!(locks.holder(LOCK), Some(process(1)));
        locks.remove(process(1));
        assert_eq!(locks.holder(LOCK), Some(process(2)));
        locks.release(LOCK, process(2));
        assert_eq!((locks.len(), locks.entries), (0, 0));
    }

    #[test]
    fn held_lock_admits_only_processes_that_wait() {
        let mut locks = Locks::default();
        assert!(locks.admits(LOCK, process(1), false));
        locks.ask(LOCK, process(1));
        assert!(!locks.admits(LOCK, process(2), false));
        assert!(locks.admits(LOCK, process(2), true));
        assert!(locks.admits(LOCK, process(1), false), "the process holds the lock");
    }

    #[test]
    fn number_of_holders_and_waiting_processes_is_bounded() {
        let mut locks = Locks::default();
        for name in 0..Locks::MAX_ENTRIES as u64 {
            assert!(locks.admits(LockName(name), process(1), true));
            locks.ask(LockName(name), process(1));
        }
        assert!(!locks.admits(LockName(u64::MAX), process(1), true));
        assert!(!locks.admits(LockName(7), process(2), true));
    }

    #[test]
    fn names_are_not_handlers_and_handlers_have_the_first_six() {
        assert_eq!(LockName::of_name("leader").handler(), None);
        assert_ne!(LockName::of_name("leader"), LockName::of_name("backup"));
        assert_eq!(LockName(5).handler(), Handler::new(5));
        assert_eq!((LockName(6).handler(), Handler::new(6)), (None, None));
    }
}
